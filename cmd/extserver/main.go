// Command extserver hosts storage-less Kubernetes-style APIs behind any front door.
//
//	serve          run the extension server
//	manifests      print the objects that an administrator must apply
//	init           write a Go module with an extension server for your own kind
//	validate       check files that declare resources
//	convert-rules  extract prometheus-adapter's rules from their ConfigMap and explain them
//	version        print the version
//	completion     print a completion script for a shell
package main

import (
	"context"
	"encoding/json"
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
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "extserver:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "extserver",
		Short:         "Host storage-less Kubernetes-style APIs behind any front door",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.Portico, // for --version
	}
	root.DisableSuggestions = true // errors are one line
	root.AddCommand(serveCommand(), manifestsCommand(), initCommand(), validateCommand(), convertRulesCommand(), versionCommand())
	return root
}

func versionCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this build",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch output {
			case "":
				fmt.Fprintln(c.OutOrStdout(), version.Text("extserver"))
			case "json":
				text, err := json.MarshalIndent(version.Get(), "", "  ")
				if err != nil {
					return fmt.Errorf("print version: %w", err)
				}
				fmt.Fprintf(c.OutOrStdout(), "%s\n", text)
			default:
				return fmt.Errorf("--output %q: must be json, or not given", output)
			}
			return nil
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "output format: json; default one line of text")
	// The flag exists.
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}
