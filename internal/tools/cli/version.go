package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"portico.dev/internal/version"
)

func versionCommand() *cobra.Command {
	var output Output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this build",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			if !output.Is("text") {
				return output.Print(cmd.OutOrStdout(), version.Get())
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.Text("portico"))
			return err
		},
	}
	output.Add(cmd.Flags())
	return cmd
}
