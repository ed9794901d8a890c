package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"portico.dev/internal/extserver"
	"portico.dev/internal/extserver/registration"
)

// caBundleNote explains the missing field, without which the manifests are incomplete.
const caBundleNote = `# No caBundle: give --tls-ca-file, or let "extserver serve" write the authority that it makes for itself;
# the ClusterRole below lets it. Until then the certificate must chain to what the front door's system trusts.
`

func manifestsCommand() *cobra.Command {
	var o extserver.Options
	c := &cobra.Command{
		Use:   "manifests",
		Short: "Print the Service, the APIServices and the RBAC objects that the server needs, as YAML",
		Long: `Print the objects that "extserver serve" with the same flags needs, for an administrator to apply: its Service and
APIServices, its RBAC roles, and a role for users who read what it serves. The command calls no server.

The roles allow the server to update its own APIServices, and its EndpointSlice with --advertise-address, each by name. With
--create-registration the output has two more roles, which also allow it to create and delete these and to change its Service.`,
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
