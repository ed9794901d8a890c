// Package cli implements the commands that work with any API server through its kubeconfig. The programs aggregator
// and kubectl-portico include all of them. Alerts, which needs no server, is in kubectl-portico only, to keep
// aggregator small.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"portico.dev/internal/tools/program"
	"portico.dev/internal/tools/toolclient"
	"portico.dev/internal/version"
)

// Options contains features that only some programs have.
type Options struct {
	// Fronts starts front doors for drills. If it is nil, drills require a kubeconfig.
	Fronts Fronts
}

// Commands returns all commands.
func Commands(o Options) []*cobra.Command {
	all := []*cobra.Command{
		doctorCommand(), consoleCommand(o), conformanceCommand(), drillCommand(o), debtsCommand(), whyCommand(), routeCommand(), migrateCommand(), adoptCommand(), releaseCommand(), enrollCommand(),
		versionCommand(),
	}
	for _, c := range all {
		callAs(c, version.Program)
		AddVerbosity(c)
	}
	return all
}

const verbosityFlag = "v"

// AddVerbosity adds the flag -v to a command that is a client of API servers. [Main] applies it, and makes client-go silent
// without it.
func AddVerbosity(c *cobra.Command) {
	c.PersistentFlags().IntP(verbosityFlag, "v", 0, "log level of client-go on standard error: 6 logs each request, 0 nothing")
}

// setLibraryOutput makes the commands with AddVerbosity configure client-go before they run. Servers do it with their log.
func setLibraryOutput(root *cobra.Command) {
	for _, c := range root.Commands() {
		if c.PersistentFlags().Lookup(verbosityFlag) == nil {
			continue
		}
		c.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
			verbosity, err := cmd.Flags().GetInt(verbosityFlag)
			if err != nil {
				return err
			}
			return toolclient.SetLibraryOutput(cmd.ErrOrStderr(), verbosity)
		}
	}
}

// callAs sets the program name in the help of a command and its subcommands.
func callAs(c *cobra.Command, name string) {
	c.Long, c.Example = strings.ReplaceAll(c.Long, "aggregator ", name+" "), strings.ReplaceAll(c.Example, "aggregator ", name+" ")
	for _, below := range c.Commands() {
		callAs(below, name)
	}
}

// Prepare completes a program, after all commands were added: groups in the help, suggestions, completion.
func Prepare(root *cobra.Command) {
	program.Prepare(root,
		program.Group{Title: "Serve", Commands: []string{"serve", "dev", "gateway", "config"}},
		program.Group{Title: "Rehearse and diagnose", Commands: []string{"doctor", "console", "conformance", "drill", "why", "route", "debts", "alerts"}},
		program.Group{Title: "Adopt and migrate", Commands: []string{"adopt", "release", "enroll", "migrate"}},
		program.Group{Title: "Storage", Commands: []string{"backup", "restore", "member", "token"}},
		program.Group{Title: "Credentials", Commands: []string{"kubeconfig", "pki"}},
	)
	completeFlags(root)
}

// Main runs a program until it ends or receives a signal, and exits with its status.
func Main(root *cobra.Command) {
	root.Version = version.Portico // for --version
	ctx, cancel := program.Context()
	defer cancel()
	out, flush := Colours(os.Stdout)
	root.SetOut(out)
	setLibraryOutput(root)
	err := root.ExecuteContext(ctx)
	flush()
	if err != nil && exitCode(err) != 0 {
		if text := err.Error(); text != "" {
			fmt.Fprintf(os.Stderr, "%s: %s\n", version.Program, text)
		}
		os.Exit(exitCode(err))
	}
}

// ExitError makes the program exit with a specific status, for commands with a status that scripts evaluate. Without
// Err, nothing is printed.
type ExitError struct {
	// Code is the exit status. Err is printed.
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// exitCode returns the exit status for an error: the code of an ExitError, 0 if the program was interrupted, and
// otherwise 1. A command with a meaningful status returns an ExitError on interruption too, so that an interrupted
// check is not reported as success.
func exitCode(err error) int {
	var e *ExitError
	switch {
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.Canceled):
		return 0
	}
	return 1
}
