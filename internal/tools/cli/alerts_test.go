package cli

import (
	"bytes"
	"maps"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"portico.dev/deploy/monitoring"
)

type alertGroups struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

func printAlerts(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := Alerts()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// shipped are the alerts of the file, with links behind an address if there is one.
func shipped(t *testing.T, base string) alertGroups {
	t.Helper()
	var want alertGroups
	if err := yaml.UnmarshalStrict([]byte(monitoring.Alerts), &want); err != nil {
		t.Fatal(err)
	}
	for _, g := range want.Groups {
		for i := range g.Rules {
			r := &g.Rules[i]
			if r.Annotations["runbook"] == "" {
				t.Errorf("alert %s has no runbook, want one", r.Alert)
			}
			if base != "" {
				r.Annotations = maps.Clone(r.Annotations)
				r.Annotations["runbook_url"] = base + r.Annotations["runbook"]
			}
		}
	}
	if len(want.Groups) < 3 {
		t.Fatalf("%d groups of alerts, want at least 3", len(want.Groups))
	}
	return want
}

func TestAlertsWithoutLinksEqualShippedFile(t *testing.T) {
	if out, err := printAlerts(t); err != nil || out != monitoring.Alerts {
		t.Errorf("alerts without links = %v:\n%s\nwant the shipped file", err, out)
	}
}

func TestEveryAlertLinksToItsRunbook(t *testing.T) {
	for base, links := range map[string]string{
		"https://wiki.example.com/portico":  "https://wiki.example.com/portico/",
		"https://wiki.example.com/portico/": "https://wiki.example.com/portico/",
		"http://[2001:db8::1]:8080":         "http://[2001:db8::1]:8080/",
		`https://example.com/?page="a\`:     `https://example.com/?page="a\/`,
	} {
		t.Run(base, func(t *testing.T) {
			out, err := printAlerts(t, "--runbook-url", base)
			if err != nil {
				t.Fatal(err)
			}
			var got alertGroups
			if err := yaml.UnmarshalStrict([]byte(out), &got); err != nil {
				t.Fatal(err)
			}
			if want := shipped(t, links); !reflect.DeepEqual(got, want) {
				t.Errorf("printed alerts = %+v, want %+v", got, want)
			}
			if !strings.Contains(out, "# min: no replica reaches it.") {
				t.Error("the printed alerts have no comments, want them kept")
			}
		})
	}
}

func TestAlertsArePrintedAsPrometheusRule(t *testing.T) {
	out, err := printAlerts(t, "--prometheus-rule", "--runbook-url", "https://wiki.example.com")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             alertGroups
	}
	if err := yaml.UnmarshalStrict([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got.APIVersion != "monitoring.coreos.com/v1" || got.Kind != "PrometheusRule" || got.Metadata.Name != "portico" {
		t.Errorf("printed object = %s %s %s, want monitoring.coreos.com/v1 PrometheusRule portico", got.APIVersion, got.Kind, got.Metadata.Name)
	}
	if want := shipped(t, "https://wiki.example.com/"); !reflect.DeepEqual(got.Spec, want) {
		t.Errorf("spec of the PrometheusRule = %+v, want %+v", got.Spec, want)
	}
}

func TestInvalidRunbookURLIsRejected(t *testing.T) {
	for _, base := range []string{"docs", "wiki.example.com/portico", "ftp://example.com", "https://", "https://example.com/#top", "https://exa mple.com", "https://example.com/\n"} {
		if out, err := printAlerts(t, "--runbook-url", base); err == nil || !strings.Contains(err.Error(), "--runbook-url") || out != "" {
			t.Errorf("alerts with the runbook URL %q = %v, %s; want an error that names the flag", base, err, out)
		}
	}
}
