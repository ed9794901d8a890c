// Command aggregator is a front door for Kubernetes-style APIs.
//
//	dev         everything in one process, with a demonstration extension server
//	serve       the front door alone
//	kubeconfig  a client's credentials
//	doctor      which hop of an APIService is broken, and how to mend it
//	conformance how an extension server, anybody's, keeps to what clients rely on
//	drill       failures of extension servers, rehearsed
//	gateway     the front door of a cluster whose API server stays
//	adopt       APIServices go behind a gateway
//	release     and come out again
//	backup      all that a front door has stored, in a file
//	restore     a data directory from a backup
//	member      the members of an etcd that several front doors have inside
//	token       the tokens by which others join them
//	debts       what finalized namespaces may have left at dead extension servers
//	why         which rule lets a user do something, or comes nearest
//	route       where a request would go, and by which rule
//	migrate     objects of an extension server become custom resources, or the reverse
//	version     what this build is
//
// Each command has a file of its own; what they start is in internal/aggregator.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"portico.dev/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// After the first signal the next one kills: a drain that hangs must not hold a terminal.
	context.AfterFunc(ctx, stop)
	if err := root().ExecuteContext(ctx); err != nil && exitCode(err) != 0 {
		if text := err.Error(); text != "" {
			fmt.Fprintln(os.Stderr, "aggregator:", text)
		}
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
	cmd.AddCommand(
		devCommand(), serveCommand(), kubeconfigCommand(),
		doctorCommand(), conformanceCommand(), drillCommand(), debtsCommand(), whyCommand(), routeCommand(), migrateCommand(),
		gatewayCommand(), adoptCommand(), releaseCommand(),
		backupCommand(), restoreCommand(), memberCommand(), tokenCommand(), versionCommand(),
	)
	return cmd
}

// exitError ends the program with a status of its own, for commands whose status scripts read. Without err the status is all
// that there is to say.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exitCode is the status that an error ends the program with: 1 unless it says otherwise, and 0 for a program that was told
// to end. A command whose status is an answer gives one of its own then too: an interrupted question is no yes.
func exitCode(err error) int {
	var e *exitError
	switch {
	case errors.As(err, &e):
		return e.code
	case errors.Is(err, context.Canceled):
		return 0
	}
	return 1
}

func versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this build",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, out := version.Get(), cmd.OutOrStdout()
			switch output {
			case "":
				_, err := fmt.Fprintf(out, "portico %s (Kubernetes %s, %s, %s)\n", version.Portico, info.GitVersion, info.GoVersion, info.Platform)
				return err
			case "json":
				e := json.NewEncoder(out)
				e.SetIndent("", "  ")
				return e.Encode(info)
			}
			return fmt.Errorf("--output: %q is not json", output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "output format: json; default text")
	return cmd
}
