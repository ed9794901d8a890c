package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeKubeconfig writes a kubeconfig with two contexts. The current one is kind-test.
func writeKubeconfig(t *testing.T, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: kind-test,
 clusters: [{name: test, cluster: {server: "` + server + `"}}, {name: none, cluster: {server: "http://127.0.0.1:1"}}],
 contexts: [{name: kind-test, context: {cluster: test}}, {name: another, context: {cluster: none}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCompletion(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api/v1/namespaces":
			fmt.Fprint(w, `{"kind":"NamespaceList","apiVersion":"v1","items":[{"metadata":{"name":"default"}},{"metadata":{"name":"shop"}}]}`)
		case "/apis/apiregistration.k8s.io/v1/apiservices":
			fmt.Fprint(w, `{"kind":"APIServiceList","apiVersion":"apiregistration.k8s.io/v1","items":[{"metadata":{"name":"v1."}},
				{"metadata":{"name":"v1.example.com"},"spec":{"service":{"name":"a","namespace":"b"}}},
				{"metadata":{"name":"v1beta1.metrics.k8s.io"},"spec":{"service":{"name":"a","namespace":"b"}}}]}`)
		default:
			t.Errorf("request for %s, want only lists of namespaces and APIServices", r.URL)
		}
	}))
	defer server.Close()
	kubeconfig := writeKubeconfig(t, server.URL)
	t.Setenv("KUBECONFIG", kubeconfig)

	const anyExtension = "v1.example.com\nv1beta1.metrics.k8s.io\n:4\n"
	for _, c := range []struct{ typed, want string }{
		{"doctor ", "apiservice\n:4\n"},
		{"doctor apiservice ", anyExtension},
		{"doctor apiservice v1beta1.metrics.k8s.io ", ":4\n"},
		{"conformance apiservice ", anyExtension},
		{"conformance url ", ":4\n"},
		{"adopt v1.example.com ", "v1beta1.metrics.k8s.io\n:4\n"},
		{"release ", anyExtension},
		{"why alice get pods -n ", "default\nshop\n:4\n"},
		{"migrate widgets.v1.example.com --namespace ", "default\nshop\n:4\n"},
		{"console --kubeconfig nowhere --context ", ":5\n"},
		{"console --context ", "another\nkind-test\n:4\n"},
		{"console --drills-on ", "another\nkind-test\n:4\n"},
		{"conformance apiservice -o ", "text\nwide\njson\nyaml\njunit\n:4\n"},
		{"debts -o ", "text\nwide\njson\nyaml\n:4\n"},
		{"drill run ref", "refuse\n"},
		{"drill ", "list\nrun\n:4\n"},
		{"conformance ", "apiservice\nurl\n:4\n"},
		{"doctor --context another apiservice ", ":5\n"}, // an API server that does not respond
	} {
		args := strings.Split(c.typed, " ")
		out, err := execute(t, append([]string{"__completeNoDesc"}, args...)...)
		if err != nil || !strings.HasPrefix(out, c.want) {
			t.Errorf("%q is completed to %q, %v; want %q", c.typed, out, err, c.want)
		}
	}
}

func TestDrillIsNotCompletedTwice(t *testing.T) {
	out, err := execute(t, "__completeNoDesc", "drill", "run", "refuse", "ref")
	if err != nil || strings.Contains(out, "refuse") {
		t.Errorf("completion after refuse = %q, %v; want no second refuse", out, err)
	}
}
