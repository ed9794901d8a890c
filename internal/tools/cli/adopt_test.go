package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"portico.dev/internal/gateway/adopter"
)

const unusedKubeconfig = `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
`

// An adoption is followed by a note about alerts, which is not mixed with the results. Results without an adoption are not.
func TestAdoptionIsFollowedByNoteAboutAlerts(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(unusedKubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		result string
		note   bool
	}{{"adopted", true}, {"dry-run", true}, {"unchanged", false}, {"refused", false}, {"released", false}} {
		t.Run(c.result, func(t *testing.T) {
			o := adoptOptions{gateway: "portico-gateway/portico-gateway", output: Output{format: "text"}}
			o.Kubeconfig = kubeconfig
			var out, errOut bytes.Buffer
			cmd := &cobra.Command{}
			cmd.SetContext(t.Context())
			cmd.SetOut(&out)
			cmd.SetErr(&errOut)
			err := o.run(cmd, []string{"v1.a.example.com", "v1.b.example.com"}, nil, func(_ context.Context, _ *adopter.Adopter, name string) adoptResult {
				return adoptResult{APIService: name, Result: c.result}
			})
			if (err != nil) != (c.result == "refused") {
				t.Errorf("run = %v, want an error only if an APIService is refused", err)
			}
			if want := "apiservice/v1.a.example.com " + c.result + "\napiservice/v1.b.example.com " + c.result + "\n"; out.String() != want {
				t.Errorf("output = %q, want %q", out.String(), want)
			}
			if got := strings.Count(errOut.String(), "KubeAggregatedAPIDown"); (got == 1) != c.note || got > 1 {
				t.Errorf("error output = %q, want one note about alerts: %t", errOut.String(), c.note)
			}
		})
	}
}
