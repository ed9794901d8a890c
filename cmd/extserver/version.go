package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"portico.dev/internal/version"
)

func versionCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print what this build is",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch output {
			case "":
				fmt.Fprintf(c.OutOrStdout(), "extserver %s\n", version.Portico)
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
	c.Flags().StringVarP(&output, "output", "o", "", "json, or not given for one line")
	return c
}
