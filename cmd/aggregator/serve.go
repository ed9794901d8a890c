package main

import (
	"github.com/spf13/cobra"

	"portico.dev/internal/aggregator"
	"portico.dev/internal/logging"
)

func serveCommand() *cobra.Command {
	config, logs := aggregator.Default(), logging.Default()
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the front door",
		Long: `Run the front door: the local groups on an embedded or external etcd, and every other
group-version behind APIServices.

What is not given is made in the data directory: keys at the first start, etcd, and
admin.kubeconfig for an administrator's kubectl.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logs.New()
			if err != nil {
				return err
			}
			defer func() { _ = log.Sync() }() // lines that wait for others
			front, err := aggregator.New(config, log)
			if err != nil {
				return err
			}
			return settling(cmd.Context(), log, config.MemoryLimit, front.Run)
		},
	}
	config.AddFlags(cmd.Flags())
	logs.AddFlags(cmd.Flags())
	return cmd
}
