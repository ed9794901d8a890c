package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := command()
	c.SetArgs(args)
	c.SetOut(&out)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestVersion(t *testing.T) {
	out, err := execute(t, "version")
	if err != nil || !strings.HasPrefix(out, "extserver v") {
		t.Errorf("version = %q, %v; want the program and its version", out, err)
	}
	out, err = execute(t, "version", "-o", "json")
	var v struct{ GitVersion string }
	if err != nil || json.Unmarshal([]byte(out), &v) != nil || v.GitVersion == "" {
		t.Errorf("version -o json = %q, %v; want JSON with a version", out, err)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out, err := execute(t, "completion", shell); err != nil || !strings.Contains(out, "extserver") {
			t.Errorf("completion %s = %v, %.200s; want a script for extserver", shell, err, out)
		}
	}
	for want, typed := range map[string][]string{
		"manifests\t":   {"man"},
		"--secure-port": {"serve", "--secure"},
		"json\n":        {"version", "-o", ""},
	} {
		if out, err := execute(t, append([]string{"__complete"}, typed...)...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%q is completed to %q, %v; want %q", typed, out, err, want)
		}
	}
}

func TestManifestsContainAllNeededObjects(t *testing.T) {
	out, err := execute(t, "manifests", "--service-name=m", "--advertise-address=192.0.2.1", "--secure-port=4444")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for doc := range strings.SplitSeq(out, "---\n") {
		var o struct{ Kind string }
		if err := yaml.UnmarshalStrict([]byte(doc), &map[string]any{}); err != nil {
			t.Fatalf("generated YAML is invalid: %v, want valid YAML in %s", err, doc)
		}
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, o.Kind)
	}
	want := "ServiceAccount ClusterRoleBinding RoleBinding ClusterRole ClusterRole ClusterRoleBinding Role RoleBinding Service EndpointSlice APIService APIService"
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("kinds = %s, want %s", got, want)
	}
	for _, part := range []string{"name: v1.metrics.k8s.io", "name: v1beta1.metrics.k8s.io", "- 192.0.2.1", "port: 4444", "# No caBundle"} {
		if !strings.Contains(out, part) {
			t.Errorf("manifests have no %q, want it in\n%s", part, out)
		}
	}
}

func TestUsageErrorsAreOneLine(t *testing.T) {
	for _, c := range []struct {
		situation string
		args      []string
		want      string
	}{
		{"no kubeconfig", []string{"serve"}, "--kubeconfig"},
		{"kubeconfig that is not there", []string{"serve", "--kubeconfig=/nowhere"}, "/nowhere"},
		{"unknown log level", []string{"serve", "--log-level=loud"}, "log-level"},
		{"unknown flag", []string{"serve", "--colour"}, "colour"},
		{"unknown command", []string{"sevre"}, "sevre"},
		{"unknown output", []string{"version", "-o", "xml"}, "xml"},
		{"argument too many", []string{"version", "please"}, "please"},
		{"address that no front door reaches", []string{"manifests", "--advertise-address=127.0.0.1"}, "loopback"},
		{"CA file that is not there", []string{"manifests", "--tls-ca-file=/nowhere"}, "/nowhere"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			_, err := execute(t, c.args...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("command error = %v, want %q", err, c.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error with more than one line: %q, want one line", err)
			}
		})
	}
}
