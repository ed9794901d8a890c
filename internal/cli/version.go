package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"portico.dev/internal/version"
)

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
