package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	cliflag "k8s.io/component-base/cli/flag"

	"portico.dev/internal/aggregator"
	"portico.dev/internal/logging"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration of a front door",
	}
	cmd.AddCommand(configPrintCommand())
	return cmd
}

func configPrintCommand() *cobra.Command {
	config, logs := aggregator.Default(), logging.Default()
	sets := settings(&config, &logs)
	var file string
	var defaults bool
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the effective configuration of serve as a configuration file",
		Long: `Print the configuration that aggregator serve uses with the same flags, as a configuration file
for its flag --config. The command validates flags as serve does, and starts nothing.`,
		Example: "  aggregator config print --etcd-servers=https://etcd:2379 > portico.yaml\n  aggregator config print --config portico.yaml --defaults",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				if err := aggregator.ReadConfigFile(file, sets); err != nil {
					return err
				}
			}
			if err := config.Validate(); err != nil {
				return err
			}
			return aggregator.PrintConfig(cmd.OutOrStdout(), sets, defaults)
		},
	}
	addGroups(cmd, sets)
	addConfigFlag(cmd, &file)
	cmd.Flags().BoolVar(&defaults, "defaults", false, "also print settings with their default value")
	return cmd
}

// settings returns the flags of a front door, in groups.
func settings(config *aggregator.Config, logs *logging.Options) cliflag.NamedFlagSets {
	sets := config.NamedFlags()
	logs.AddFlags(sets.FlagSet("log"))
	return sets
}

func addConfigFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "config", "", "file with an AggregatorConfiguration of config.portico.dev/v1alpha1; flags on the command line take precedence")
}

// addGroups adds flags to a command, with a help text that shows them in groups. Other flags of the command come
// first.
func addGroups(cmd *cobra.Command, sets cliflag.NamedFlagSets) {
	for _, name := range sets.Order {
		cmd.Flags().AddFlagSet(sets.FlagSets[name])
	}
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		out := cmd.OutOrStderr()
		fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
		if cmd.HasExample() {
			fmt.Fprintf(out, "\nExamples:\n%s\n", strings.TrimRight(cmd.Example, "\n"))
		}
		own := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			for _, name := range sets.Order {
				if sets.FlagSets[name].Lookup(f.Name) != nil {
					return
				}
			}
			own.AddFlag(f)
		})
		width := columns()
		fmt.Fprintf(out, "\nFlags:\n%s", own.FlagUsagesWrapped(width))
		cliflag.PrintSections(out, sets, width)
		return nil
	})
}

// columns returns the width of the terminal. Without a terminal it returns zero, which disables wrapping.
func columns() int {
	width, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return 0
	}
	return width
}
