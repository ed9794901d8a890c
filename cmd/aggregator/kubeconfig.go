package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"portico.dev/internal/aggregator"
	"portico.dev/internal/pki"
)

func kubeconfigCommand() *cobra.Command {
	var dataDir, server, user, output string
	var groups []string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:     "kubeconfig --user NAME [--group GROUP]...",
		Short:   "Issue a client's kubeconfig from the authority in the data directory",
		Example: "  aggregator kubeconfig --user alice --group dev > alice.kubeconfig",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := aggregator.Kubeconfig(dataDir, server, user, groups, ttl)
			if err != nil {
				return err
			}
			if output != "" {
				return pki.WriteFile(output, data, 0o600)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), string(data))
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&dataDir, "data-dir", aggregator.Default().DataDir, "data directory of the front door")
	fs.StringVar(&server, "server", "", "URL of the front door; default the one in the data directory's admin.kubeconfig")
	fs.StringVar(&user, "user", "", "name of the user")
	fs.StringSliceVar(&groups, "group", nil, "a group of the user; may be repeated")
	fs.DurationVar(&ttl, "ttl", pki.LeafTTL, "life of the credentials")
	fs.StringVarP(&output, "output", "o", "", "file to write, with mode 0600; default standard output")
	return cmd
}
