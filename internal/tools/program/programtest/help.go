// Package programtest checks the help of a program.
package programtest

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// valueName matches the name of a flag's value in the help, such as string, portRange or host:port.
var valueName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*(:[a-z]+)?$`)

// CheckHelp checks the help of every command and flag: commands of the program are in a group, commands and flags are described
// in one line, and no part of a usage becomes the name of a value, as pflag does with text in backquotes.
func CheckHelp(t *testing.T, root *cobra.Command) {
	t.Helper()
	if root.Short == "" {
		t.Errorf("%s has no description", root.Name())
	}
	for _, c := range root.Commands() {
		if c.GroupID == "" {
			t.Errorf("command %s is in no group of the help", c.CommandPath())
		}
		checkCommand(t, c)
	}
}

func checkCommand(t *testing.T, c *cobra.Command) {
	t.Helper()
	for _, below := range c.Commands() {
		checkCommand(t, below)
	}
	if !c.Hidden && (c.Short == "" || strings.ContainsAny(c.Short, "\n`")) {
		t.Errorf("description of %s = %q, want one line without backquotes", c.CommandPath(), c.Short)
	}
	c.InitDefaultHelpFlag()
	c.Flags().VisitAll(func(f *pflag.Flag) { checkFlag(t, c, f) })
	checkOrder(t, c)
}

func checkFlag(t *testing.T, c *cobra.Command, f *pflag.Flag) {
	t.Helper()
	name, usage := pflag.UnquoteUsage(f)
	isSwitch := f.NoOptDefVal != ""
	if !valueName.MatchString(name) && (name != "" || !isSwitch) {
		t.Errorf("value of --%s of %s is called %q, want one word; usage: %s", f.Name, c.CommandPath(), name, f.Usage)
	}
	if strings.ContainsAny(usage, "\n`") || usage == "" && f.Deprecated == "" {
		t.Errorf("usage of --%s of %s = %q, want one line without backquotes", f.Name, c.CommandPath(), f.Usage)
	}
}

// checkOrder checks that the help lists the command's own flags before inherited flags and before groups of flags.
func checkOrder(t *testing.T, c *cobra.Command) {
	t.Helper()
	var help bytes.Buffer
	c.SetOut(&help)
	if err := c.Usage(); err != nil {
		t.Errorf("help of %s: %v", c.CommandPath(), err)
	}
	own := strings.Index(help.String(), "\nFlags:\n")
	if own < 0 {
		t.Errorf("help of %s has no section of its own flags:\n%s", c.CommandPath(), help.String())
	}
	if first := regexp.MustCompile(`(?m)^.* [Ff]lags:$`).FindStringIndex(help.String()); first != nil && first[0] < own {
		t.Errorf("help of %s has %q before its own flags", c.CommandPath(), help.String()[first[0]:first[1]])
	}
}
