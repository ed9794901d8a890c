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
	root := &cobra.Command{Use: "program"}
	root.AddCommand(Commands(Options{})...)
	Prepare(root)
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
		t.Errorf("version -o yaml = %q, %v; want YAML with a version", out, err)
	}
	if out, err := execute(t, "version", "-o", "xml"); err == nil || !strings.Contains(err.Error(), `"xml"`) {
		t.Errorf("version -o xml = %q, %v; want an error that names xml", out, err)
	}
}

// Every command with JSON output offers YAML.
func TestCommandsWithJSONOutputOfferYAML(t *testing.T) {
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		for _, below := range c.Commands() {
			look(below)
		}
		if f := c.Flags().Lookup("output"); f != nil && strings.Contains(f.Usage, "json") && !strings.Contains(f.Usage, "yaml") {
			t.Errorf("usage of --output of %s = %s, want yaml", c.CommandPath(), f.Usage)
		}
	}
	for _, c := range Commands(Options{}) {
		look(c)
	}
}

// A program without local front doors drills only an explicit cluster.
func TestDrillsNeedCluster(t *testing.T) {
	_, err := execute(t, "drill", "run", "refuse")
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != exitDrillUsage || !strings.Contains(err.Error(), "--context or --kubeconfig") {
		t.Errorf("drill run without a cluster: error = %v, want exit code %d and the flags", err, exitDrillUsage)
	}
}

// The doctor suggests the intended command if it gets a name alone, before it sends a request.
func TestDoctorSuggestsTheIntendedCommand(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"v1beta1.metrics.k8s.io"}, "run `program doctor apiservice v1beta1.metrics.k8s.io`"},
		{[]string{"apiservice/v1beta1.metrics.k8s.io"}, "run `program doctor apiservice v1beta1.metrics.k8s.io`"},
		{[]string{"apiservices"}, "run `program doctor apiservices NAME`, or `program doctor` for all"},
		{[]string{"metrics-server"}, "`program doctor apiservice VERSION.GROUP`"},
		{[]string{"v1."}, "`program doctor apiservice VERSION.GROUP`"},
		{[]string{"service", "v1beta1.metrics.k8s.io"}, "`program doctor apiservice VERSION.GROUP`"},
	} {
		_, err := execute(t, append([]string{"doctor", "--kubeconfig", "nowhere"}, c.args...)...)
		var exit *ExitError
		if !errors.As(err, &exit) || exit.Code != exitUnexamined || !strings.Contains(err.Error(), c.want) {
			t.Errorf("doctor %v: error = %v, want %q", c.args, err, c.want)
		}
	}
}

// Programs print warnings of API servers as kubectl does, and nothing of client-go's log.
func TestToolsRouteOutputOfClientGo(t *testing.T) {
	root := &cobra.Command{Use: "program"}
	server := &cobra.Command{Use: "server", Run: func(*cobra.Command, []string) {}}
	root.AddCommand(server)
	root.AddCommand(Commands(Options{})...)
	setLibraryOutput(root)
	for _, c := range root.Commands() {
		if got, want := c.PersistentPreRunE != nil, c != server; got != want {
			t.Errorf("%s sets the output of client-go = %t, want %t", c.Name(), got, want)
		}
		for _, below := range c.Commands() {
			if below.PersistentPreRun != nil || below.PersistentPreRunE != nil {
				t.Errorf("%s has a PersistentPreRun, want none, because cobra runs only the nearest one", below.CommandPath())
			}
		}
	}
}
