// Package cli has the commands that work with any API server by its kubeconfig. The programs aggregator and kubectl-portico have all of them. Alerts, which
// needs no server, is in kubectl-portico only: aggregator has to stay small.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"portico.dev/internal/version"
)

// Options are what only some programs have.
type Options struct {
	// Fronts starts front doors for drills to break. Nil: drills need a kubeconfig.
	Fronts Fronts
}

// Commands are all commands.
func Commands(o Options) []*cobra.Command {
	all := []*cobra.Command{
		doctorCommand(), consoleCommand(o), conformanceCommand(), drillCommand(o), debtsCommand(), whyCommand(), routeCommand(), migrateCommand(), adoptCommand(), releaseCommand(),
		versionCommand(),
	}
	for _, c := range all {
		callAs(c, version.Program)
	}
	return all
}

// callAs has the help of a command, and of those below it, say how people call the program.
func callAs(c *cobra.Command, name string) {
	c.Long, c.Example = strings.ReplaceAll(c.Long, "aggregator ", name+" "), strings.ReplaceAll(c.Example, "aggregator ", name+" ")
	for _, below := range c.Commands() {
		callAs(below, name)
	}
}

// Main runs a program until it has ended or is told to, and exits with its status.
func Main(root *cobra.Command) {
	root.Version = version.Portico // for --version
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// After the first signal the next one kills: a drain that hangs must not hold a terminal.
	context.AfterFunc(ctx, stop)
	out, flush := Colours(os.Stdout)
	root.SetOut(out)
	err := root.ExecuteContext(ctx)
	flush()
	if err != nil && exitCode(err) != 0 {
		if text := err.Error(); text != "" {
			fmt.Fprintf(os.Stderr, "%s: %s\n", version.Program, text)
		}
		os.Exit(exitCode(err))
	}
}

// ExitError ends the program with a status of its own, for commands whose status scripts read. Without err the status is all
// that there is to say.
type ExitError struct {
	// Code is the status, and Err what is printed.
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

// exitCode is the status that an error ends the program with: 1 unless it says otherwise, and 0 for a program that was told
// to end. A command whose status is an answer gives one of its own then too: an interrupted question is no yes.
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
