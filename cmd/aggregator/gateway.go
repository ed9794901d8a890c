package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"portico.dev/internal/gateway"
	"portico.dev/internal/logging"
)

func gatewayCommand() *cobra.Command {
	config, logs := gateway.Default(), logging.Default()
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Run a gateway between another API server and its extension servers",
		Long: `Run a gateway between an unmodified kube-apiserver and unmodified extension servers. For extension servers it
provides the same as the front door: connection management, verdicts, retries, last-known discovery, errors that name the cause.
It serves the APIServices that "aggregator adopt" puts behind it.

It needs no etcd. It stores its state in its namespace: a Secret, ConfigMaps, a Lease.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logs.New()
			if err != nil {
				return err
			}
			defer func() { _ = log.Sync() }() // flush buffered lines
			g, err := gateway.New(config, log)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "listening on %s\n", g.Address())
			return settling(cmd.Context(), log, config.MemoryLimit, g.Run)
		},
	}
	config.AddFlags(cmd.Flags())
	logs.AddFlags(cmd.Flags())
	return cmd
}
