package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"portico.dev/internal/extension/extserver"
	"portico.dev/internal/extension/registration"
)

// caBundleNote explains a missing field: without it a reader would take the manifests for complete.
const caBundleNote = `# No caBundle: give --tls-ca-file, or let "extserver serve" write the authority that it makes for itself;
# the ClusterRole below lets it. Until then the certificate must chain to what the front door's system trusts.
`

func manifestsCommand() *cobra.Command {
	var o extserver.Options
	c := &cobra.Command{
		Use:   "manifests",
		Short: "Print the Service, the APIServices and the RBAC objects that the server needs, as YAML",
		Long: `Print what an administrator applies so that "extserver serve" with the same flags works: its Service and
APIServices, its rights, and a role for those who read what it serves. No server is asked.

The rights are to update its own APIServices, and its EndpointSlice with --advertise-address, each by name. With
--create-registration it prints two more roles, by which the server may also create and delete these and change its Service.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			objects, err := extserver.Manifests(o)
			if err != nil {
				return err
			}
			text, err := registration.YAML(objects)
			if err != nil {
				return err
			}
			if o.CAFile == "" {
				fmt.Fprint(c.OutOrStdout(), caBundleNote)
			}
			_, err = c.OutOrStdout().Write(text)
			return err
		},
	}
	o.AddFlags(c.Flags())
	return c
}
