// Package program contains the parts that all programs share: help, suggestions for misspelled commands and flags, and signals.
package program

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"portico.dev/internal/nearest"
)

// Group is a group of commands in the help of a program.
type Group struct {
	Title    string
	Commands []string
}

// otherCommands is the title of the group of all commands that are in no other group.
const otherCommands = "Other"

// Prepare completes a program, after all commands were added. The help shows the commands in the given groups. An unknown
// command or flag is an error of one line that suggests the nearest one.
func Prepare(root *cobra.Command, groups ...Group) {
	root.SilenceUsage, root.SilenceErrors = true, true
	for _, g := range groups {
		addGroup(root, g)
	}
	root.AddGroup(&cobra.Group{ID: otherCommands, Title: otherCommands + ":"})
	for _, c := range root.Commands() {
		c.GroupID = cmp.Or(c.GroupID, otherCommands)
	}
	root.SetHelpCommandGroupID(otherCommands)
	root.SetCompletionCommandGroupID(otherCommands)
	addSuggestions(root)
}

// addGroup puts the commands of a group in it. A group without commands does not appear in the help.
func addGroup(root *cobra.Command, g Group) {
	for _, c := range root.Commands() {
		if !slices.Contains(g.Commands, c.Name()) {
			continue
		}
		if !root.ContainsGroup(g.Title) {
			root.AddGroup(&cobra.Group{ID: g.Title, Title: g.Title + ":"})
		}
		c.GroupID = g.Title
	}
}

// addSuggestions adds suggestions to the errors of a command and its subcommands. Subcommands come first, because a command
// inherits the flag error function of its parent.
func addSuggestions(c *cobra.Command) {
	for _, below := range c.Commands() {
		addSuggestions(below)
	}
	next := c.FlagErrorFunc()
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return next(c, suggestFlag(c, err)) })
	if !c.HasSubCommands() {
		return
	}
	if !c.Runnable() {
		// Otherwise cobra ignores the arguments, prints the help and returns no error.
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		c.DisableFlagsInUseLine = true
	}
	validate := c.Args
	if validate == nil {
		validate = cobra.NoArgs
	}
	c.Args = func(c *cobra.Command, args []string) error {
		err := validate(c, args)
		if err == nil || len(args) == 0 {
			return err
		}
		return suggestCommand(c, args[0], err)
	}
	if c.ValidArgsFunction == nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
}

func suggestFlag(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	near := ""
	if unknown.GetSpecifiedShortnames() == "" {
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				known = append(known, f.Name)
			}
		})
		if name := nearest.Word(unknown.GetSpecifiedName(), known); name != "" {
			near = "--" + name
		}
	}
	return suggest(err, near, c, "flags")
}

func suggestCommand(c *cobra.Command, name string, err error) error {
	var known []string
	for _, below := range c.Commands() {
		if below.IsAvailableCommand() {
			known = append(known, below.Name())
		}
	}
	return suggest(err, nearest.Word(name, known), c, "commands")
}

// suggest adds the nearest word, if any, and the command that lists all words to an error.
func suggest(err error, near string, c *cobra.Command, words string) error {
	if near == "" {
		return fmt.Errorf("%w; `%s --help` lists the %s", err, c.CommandPath(), words)
	}
	return fmt.Errorf("%w; did you mean %s? `%s --help` lists the %s", err, near, c.CommandPath(), words)
}
