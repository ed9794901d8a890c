// Command aggregator is a front door for Kubernetes-style APIs.
//
//	dev         everything in one process, with a demonstration extension server
//	serve       the front door alone
//	kubeconfig  a client's credentials
//	doctor      which hop of an APIService is broken, and how to mend it
//	conformance how an extension server, anybody's, keeps to what clients rely on
//	drill       failures of extension servers, rehearsed
//	backup      all that a front door has stored, in a file
//	restore     a data directory from a backup
//	debts       what finalized namespaces may have left at dead extension servers
//	why         which rule lets a user do something, or comes nearest
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
		os.Exit(exitCode(err))
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "aggregator",
		Short:         "A front door for Kubernetes-style APIs",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(devCommand(), serveCommand(), kubeconfigCommand(), doctorCommand(), conformanceCommand(), drillCommand(), backupCommand(), restoreCommand(), debtsCommand(), whyCommand(), versionCommand())
	return cmd
}
