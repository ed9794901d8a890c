// Command kubectl-portico is a kubectl plugin for operators of extension servers in any cluster: `kubectl portico
// doctor`. It contains the commands of aggregator that work through a kubeconfig, and the alert rules for Prometheus.
// It does not contain an API server.
package main

import (
	"github.com/spf13/cobra"

	"portico.dev/internal/tools/cli"
	"portico.dev/internal/version"
)

func main() { cli.Main(root()) }

func root() *cobra.Command {
	version.Program = "kubectl portico"
	cmd := &cobra.Command{
		Use:         "kubectl-portico",
		Short:       "Diagnose extension servers, rehearse their failures, and put them behind a gateway",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: version.Program},
	}
	cmd.AddCommand(cli.Commands(cli.Options{})...)
	cmd.AddCommand(cli.Alerts())
	cli.Prepare(cmd)
	return cmd
}
