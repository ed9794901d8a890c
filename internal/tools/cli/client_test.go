package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMissingKubeconfigIsOneLineWithRemedy(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		situation, env string
		flags          ClientFlags
		want           string
	}{
		{"flag names a missing file", "", ClientFlags{Kubeconfig: missing}, "--kubeconfig: " + missing + " does not exist"},
		{"variable names a missing file", missing, ClientFlags{}, "$KUBECONFIG: " + missing + " does not exist; correct the variable"},
		{"variable names two missing files", missing + string(filepath.ListSeparator) + missing + "2", ClientFlags{}, missing + ", " + missing + "2 does not exist"},
		{"context in a missing file", missing, ClientFlags{Context: "kind-test"}, "$KUBECONFIG: " + missing + " does not exist"},
		{"empty file", empty, ClientFlags{}, "read the kubeconfig"},
		{"unknown context", writeKubeconfig(t, "http://127.0.0.1:1"), ClientFlags{Context: "other"}, "other"},
	} {
		t.Setenv("KUBECONFIG", c.env)
		_, err := c.flags.Config()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error = %v, want one line with %q", c.situation, err, c.want)
		}
	}
}
