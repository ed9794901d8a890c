package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"portico.dev/internal/extserver/custommetrics"
)

func convertRulesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "convert-rules FILE",
		Short: "Check prometheus-adapter's rules, and print each with a comment on the metrics that it serves",
		Long: "Prints the rules of a prometheus-adapter configuration as a plain file, with a comment above each rule on the\n" +
			"metrics that it serves. FILE is the configuration, a manifest with the ConfigMap that holds it, or - for standard input.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			data, err := readRules(c.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			out, err := custommetrics.ConvertRules(args[0], data)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(out)
			return err
		},
	}
}

// readRules reads at most one byte more than rules.Read accepts.
func readRules(stdin io.Reader, path string) ([]byte, error) {
	in := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("rules: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, custommetrics.MaxRulesBytes+1))
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return data, nil
}
