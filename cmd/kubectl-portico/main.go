// Command kubectl-portico is a plugin of kubectl for those who have to do with extension servers of any cluster: `kubectl portico doctor`.
// It has the commands of the program aggregator that work by kubeconfig, the alert rules for Prometheus, and no API server.
package main

import (
	"github.com/spf13/cobra"

	"portico.dev/internal/cli"
	"portico.dev/internal/version"
)

func main() {
	version.Program = "kubectl portico"
	cmd := &cobra.Command{
		Use:           "kubectl-portico",
		Short:         "Diagnose, rehearse and put behind a gateway the extension servers of a cluster",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: version.Program},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(cli.Commands(cli.Options{})...)
	cmd.AddCommand(cli.Alerts())
	cli.Main(cmd)
}
