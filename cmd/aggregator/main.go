// Command aggregator is a front door for Kubernetes-style APIs.
//
//	dev         everything in one process, with a demonstration extension server
//	serve       the front door alone
//	kubeconfig  a client's credentials
//	version     what this build is
//
// Each command has a file of its own; what they start is in internal/aggregator.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// After the first signal the next one kills: a drain that hangs must not hold a terminal.
	context.AfterFunc(ctx, stop)
	if err := root().ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "aggregator:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "aggregator",
		Short:         "A front door for Kubernetes-style APIs",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(devCommand(), serveCommand(), kubeconfigCommand(), versionCommand())
	return cmd
}
