package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/extension/metricsapi"
	"portico.dev/internal/extension/register"
)

// caBundleNote explains a missing field: without it a reader would take the manifests for complete.
const caBundleNote = `# No caBundle: give --tls-ca-file, or let "extserver serve" write the authority that it makes for itself;
# the ClusterRole below lets it. Until then the certificate must chain to what the front door's system trusts.
`

func manifestsCommand() *cobra.Command {
	r := register.Registration{}
	var caFile string
	c := &cobra.Command{
		Use:   "manifests",
		Short: "Print the Service, the APIServices and the RBAC objects that the server needs, as YAML",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if caFile != "" {
				bundle, err := os.ReadFile(caFile)
				if err != nil {
					return fmt.Errorf("--tls-ca-file: %w", err)
				}
				r.CABundle = bundle
			} else {
				fmt.Fprint(c.OutOrStdout(), caBundleNote)
			}
			return printManifests(c, r)
		},
	}
	f := c.Flags()
	f.StringVar(&r.Namespace, "service-namespace", "kube-system", "namespace of the Service; it must exist")
	f.StringVar(&r.Service, "service-name", "portico-extserver", "name of the Service")
	f.StringVar(&r.ExternalName, "service-external-name", "localhost", "DNS name under which the front door reaches the server")
	f.StringSliceVar(&r.Addresses, "advertise-address", nil,
		"IP addresses under which the front door reaches the server; makes a Service with an EndpointSlice instead of a DNS name")
	f.IntVar(&r.Port, "secure-port", defaultPort, "port of the server")
	f.StringVar(&caFile, "tls-ca-file", "", "PEM file that the server's certificate chains to")
	return c
}

func printManifests(c *cobra.Command, r register.Registration) error {
	for _, v := range []string{"v1", "v1beta1"} {
		r.GroupVersions = append(r.GroupVersions, schema.GroupVersion{Group: metricsapi.Group, Version: v})
	}
	if err := r.Validate(); err != nil {
		return err
	}
	objects := append(r.RBAC([]register.Resources{{Group: metricsapi.Group, Names: []string{"nodes"}}}), r.Objects()...)
	text, err := register.YAML(objects)
	if err != nil {
		return err
	}
	_, err = c.OutOrStdout().Write(text)
	return err
}
