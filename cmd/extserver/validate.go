package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"portico.dev/internal/extserver/declared"
)

func validateCommand() *cobra.Command {
	var allowExec bool
	c := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check files that declare resources, without calling a server or their sources",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, paths []string) error {
			resources, err := declared.Check(declared.Config{Paths: paths, AllowExec: allowExec})
			var mistakes declared.MistakesError
			switch {
			case errors.As(err, &mistakes):
				fmt.Fprintln(c.OutOrStdout(), mistakes)
				return fmt.Errorf("%d %s", len(mistakes), plural(len(mistakes), "mistake"))
			case err != nil:
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%d %s, no mistakes\n", resources, plural(resources, "resource"))
			return nil
		},
	}
	c.Flags().BoolVar(&allowExec, "allow-exec-sources", false, "accept sources that run commands, as extserver serve does with this flag")
	return c
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
