package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := &cobra.Command{Use: "program", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(Commands(Options{})...)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestYAML(t *testing.T) {
	out, err := execute(t, "version", "-o", "yaml")
	var info struct{ GitVersion string }
	if err != nil || yaml.Unmarshal([]byte(out), &info) != nil || !strings.HasPrefix(info.GitVersion, "v1.") || strings.Contains(out, "{") {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := execute(t, "version", "-o", "xml"); err == nil || !strings.Contains(err.Error(), `"xml"`) {
		t.Errorf("%q, %v", out, err)
	}
}

// Every command that has JSON says that it has YAML.
func TestHelpSaysYAML(t *testing.T) {
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		for _, below := range c.Commands() {
			look(below)
		}
		if f := c.Flags().Lookup("output"); f != nil && strings.Contains(f.Usage, "json") && !strings.Contains(f.Usage, "yaml") {
			t.Errorf("%s: %s", c.CommandPath(), f.Usage)
		}
	}
	for _, c := range Commands(Options{}) {
		look(c)
	}
}

// Without front doors of its own, a program drills only what it is told to.
func TestDrillsNeedACluster(t *testing.T) {
	_, err := execute(t, "drill", "run", "refuse")
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != exitDrillUsage || !strings.Contains(err.Error(), "--context or --kubeconfig") {
		t.Errorf("%v", err)
	}
}
