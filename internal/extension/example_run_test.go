package extension_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/pki"
)

var _ = main // what the page shows as a program is one

// TestThePageShowsWhatIsCompiled: the example in the developer's page is example_test.go, line by line, and short.
func TestThePageShowsWhatIsCompiled(t *testing.T) {
	code, err := os.ReadFile("example_test.go")
	must(t, err)
	program := strings.Replace(string(code), "package extension_test", "package main", 1)
	if lines := strings.Count(program, "\n"); lines > 60 {
		t.Errorf("the example has %d lines; more than sixty is not what was promised", lines)
	}
	quoted(t, program)
}

// TestThePageShowsTheView: so is the view of the page, without its imports.
func TestThePageShowsTheView(t *testing.T) {
	code, err := os.ReadFile("example_view_test.go")
	must(t, err)
	_, view, ok := strings.Cut(string(code), ")\n\n")
	if !ok {
		t.Fatal("example_view_test.go has no imports")
	}
	quoted(t, view)
}

// quoted checks that the page has code as a block.
func quoted(t *testing.T, code string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/extension-servers.md")
	must(t, err)
	if !strings.Contains(string(page), "```go\n"+code+"```\n") {
		t.Error("docs/extension-servers.md quotes something else; copy the file into it")
	}
}

// frontDoor publishes an authentication ConfigMap and lets alice list mailboxes.
type frontDoor struct{ data map[string]string }

func (f frontDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		if r.URL.Query().Has("watch") {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		_ = json.NewEncoder(w).Encode(corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: "extension-apiserver-authentication", Namespace: "kube-system", ResourceVersion: "1"}, Data: f.data})
		return
	}
	var review authorizationv1.SubjectAccessReview
	_ = json.NewDecoder(r.Body).Decode(&review) // nonsense allows nothing
	review.Status.Allowed = review.Spec.User == "alice" && review.Spec.ResourceAttributes != nil
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(review)
}

// TestTheExampleServes runs the program of the page behind the part of a front door that it talks to.
func TestTheExampleServes(t *testing.T) {
	proxies := authtest.NewCA(t, "front-proxy-ca")
	front := authtest.Serve(t, frontDoor{data: map[string]string{
		"requestheader-client-ca-file":       string(proxies.PEM()),
		"requestheader-allowed-names":        `["front-proxy-client"]`,
		"requestheader-username-headers":     `["X-Remote-User"]`,
		"requestheader-group-headers":        `["X-Remote-Group"]`,
		"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	}})
	dir := t.TempDir()
	kubeconfig, caFile, spool := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "ca.crt"), filepath.Join(dir, "mail")
	must(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: front.URL, CertificateAuthorityData: front.RootPEM}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c"}},
		CurrentContext: "c",
	}, kubeconfig))
	must(t, os.Mkdir(spool, 0o755))
	must(t, os.WriteFile(filepath.Join(spool, "alice"), make([]byte, 42), 0o644))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	must(t, l.Close())

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { serve(ctx, kubeconfig, spool, caFile, port) })
	defer running.Wait()
	defer cancel()

	var client *http.Client
	eventually(t, "the example writes its certificate", func() bool {
		roots, err := os.ReadFile(caFile)
		if err != nil || len(roots) == 0 {
			return false
		}
		config, err := pki.ClientConfig(pki.ClientOptions{ServerName: "mail.default.svc", Roots: roots})
		must(t, err)
		config.Certificates = append(config.Certificates, *proxies.Client(t, "front-proxy-client"))
		client = &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
		return true
	})
	defer client.CloseIdleConnections()
	ask := func(user string) (int, string) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/apis/mail.example.com/v1/mailboxes", port), nil)
		must(t, err)
		r.Header.Set("X-Remote-User", user)
		response, err := client.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		must(t, err)
		return response.StatusCode, string(body)
	}
	eventually(t, "the example answers", func() bool { code, _ := ask("alice"); return code == http.StatusOK })
	if _, body := ask("alice"); !strings.Contains(body, `"name":"alice"`) || !strings.Contains(body, `"bytes":42`) {
		t.Errorf("alice got %s", body)
	}
	if code, body := ask("mallory"); code != http.StatusForbidden {
		t.Errorf("mallory got %d %s", code, body)
	}
}
