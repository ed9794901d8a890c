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
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"portico.dev/internal/tools/program"
	"portico.dev/internal/version"
)

func main() {
	ctx, cancel := program.Context()
	defer cancel()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "extserver:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:     "extserver",
		Short:   "Host storage-less Kubernetes-style APIs behind any front door",
		Version: version.Portico, // for --version
	}
	root.AddCommand(serveCommand(), manifestsCommand(), initCommand(), validateCommand(), convertRulesCommand(), versionCommand())
	program.Prepare(root,
		program.Group{Title: "Serve", Commands: []string{"serve", "manifests"}},
		program.Group{Title: "Write and check", Commands: []string{"init", "validate", "convert-rules"}},
	)
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
