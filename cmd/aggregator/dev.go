package main

import (
	"context"

	"github.com/spf13/cobra"

	"portico.dev/internal/aggregator"
	"portico.dev/internal/logging"
)

func devCommand() *cobra.Command {
	config, logs := aggregator.Default(), logging.Default()
	config.AccessLog = false
	logs.Level = "warn"
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Try it: a front door with a live extension API behind it, in one process",
		Long: `Run everything in one process with no preparation: embedded etcd, keys made at the first
start, the front door, and an extension server that serves metrics.k8s.io from the procfs
of this machine. The extension server is registered through the public API like any other.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logs.New()
			if err != nil {
				return err
			}
			defer func() { _ = log.Sync() }() // lines that wait for others
			return settling(cmd.Context(), log, config.MemoryLimit, func(ctx context.Context) error {
				return aggregator.Dev(ctx, config, cmd.OutOrStdout(), log)
			})
		},
	}
	config.AddFlags(cmd.Flags())
	logs.AddFlags(cmd.Flags())
	return cmd
}
