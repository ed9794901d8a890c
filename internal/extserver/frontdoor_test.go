package extserver

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/pki"
	"portico.dev/pkg/extension"
)

func TestMain(m *testing.M) {
	// The parallel tests wait more than they compute. The command line overrides this value.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// frontDoor is a small front door with TLS, the trust ConfigMap, reviews, a Node, and the objects applied to it.
type frontDoor struct {
	t                              *testing.T
	server                         *httptest.Server
	serving, clients, frontProxies *pki.Authority

	mu      sync.Mutex
	allow   func(authorizationv1.SubjectAccessReviewSpec) bool
	refuse  map[string]int // status codes by a part of the path
	applied map[string]map[string]any
	reviews int
}

func newFrontDoor(t *testing.T) *frontDoor {
	t.Helper()
	f := &frontDoor{t: t, applied: map[string]map[string]any{}, refuse: map[string]int{}}
	for _, a := range []struct {
		into **pki.Authority
		name string
	}{{&f.serving, "serving-ca"}, {&f.clients, "client-ca"}, {&f.frontProxies, "front-proxy-ca"}} {
		authority, err := pki.NewAuthority(a.name)
		must(t, err)
		*a.into = authority
	}
	certPEM, keyPEM, err := f.serving.Issue(pki.Leaf{CommonName: "front-door", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	must(t, err)
	pair, err := pki.StaticKeyPair(certPEM, keyPEM)
	must(t, err)
	f.server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.server.TLS = pki.ServerConfig(pair)
	own, err := pair.GetCertificate(nil)
	must(t, err)
	f.server.TLS.Certificates = []tls.Certificate{*own} // Otherwise httptest adds its own certificate.
	f.server.EnableHTTP2 = true
	f.server.StartTLS()
	t.Cleanup(f.server.Close)
	return f
}

func (f *frontDoor) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for part, code := range f.refuse {
		if strings.Contains(r.URL.Path, part) {
			answerJSON(w, code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "not for you"})
			return
		}
	}
	switch path := r.URL.Path; {
	case r.URL.Query().Get("watch") == "true":
		f.mu.Unlock()
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		f.mu.Lock()
	case path == "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication":
		answerJSON(w, http.StatusOK, f.trust())
	case path == "/api/v1/nodes/this-node":
		answerJSON(w, http.StatusOK, map[string]any{"kind": "Node", "apiVersion": "v1",
			"metadata": map[string]any{"name": "this-node", "labels": map[string]string{"zone": "attic"}}})
	case path == "/apis/authentication.k8s.io/v1/tokenreviews":
		f.reviewToken(w, r)
	case path == "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		f.reviewAccess(w, r)
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/apply-patch+yaml" && r.URL.Query().Get("fieldManager") == "extserver":
		var o map[string]any
		text, err := io.ReadAll(r.Body)
		if err == nil {
			err = yaml.Unmarshal(text, &o)
		}
		if err != nil {
			answerJSON(w, http.StatusBadRequest, nil)
			return
		}
		f.applied[path] = o
		answerJSON(w, http.StatusOK, o)
	default:
		answerJSON(w, http.StatusNotFound, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})
	}
}

func (f *frontDoor) trust() map[string]any {
	return map[string]any{"kind": "ConfigMap", "apiVersion": "v1",
		"metadata": map[string]any{"name": "extension-apiserver-authentication", "namespace": "kube-system", "resourceVersion": "1"},
		"data": map[string]string{
			"client-ca-file":                     string(f.clients.PEM()),
			"requestheader-client-ca-file":       string(f.frontProxies.PEM()),
			"requestheader-allowed-names":        `["front-proxy-client"]`,
			"requestheader-username-headers":     `["X-Remote-User"]`,
			"requestheader-group-headers":        `["X-Remote-Group"]`,
			"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
		}}
}

func (f *frontDoor) reviewToken(w http.ResponseWriter, r *http.Request) {
	var review authenticationv1.TokenReview
	_ = json.NewDecoder(r.Body).Decode(&review)
	if name, ok := strings.CutPrefix(review.Spec.Token, "token-of-"); ok {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: name}}
	}
	answerJSON(w, http.StatusCreated, review)
}

func (f *frontDoor) reviewAccess(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SubjectAccessReview
	_ = json.NewDecoder(r.Body).Decode(&review)
	f.reviews++
	review.Status.Allowed = f.allow == nil || f.allow(review.Spec)
	answerJSON(w, http.StatusCreated, review)
}

func answerJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func (f *frontDoor) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *frontDoor) appliedAt(path string) map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.applied[path]
}

// kubeconfig writes a kubeconfig for the front door and returns its path.
func (f *frontDoor) kubeconfig() string {
	certPEM, keyPEM, err := f.clients.Issue(pki.Leaf{CommonName: "extserver", Client: true})
	must(f.t, err)
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "it",
		"clusters": []any{map[string]any{"name": "it", "cluster": map[string]any{"server": f.server.URL, "certificate-authority-data": f.serving.PEM()}}},
		"users":    []any{map[string]any{"name": "it", "user": map[string]any{"client-certificate-data": certPEM, "client-key-data": keyPEM}}},
		"contexts": []any{map[string]any{"name": "it", "context": map[string]any{"cluster": "it", "user": "it"}}},
	})
	must(f.t, err)
	file := filepath.Join(f.t.TempDir(), "kubeconfig")
	must(f.t, os.WriteFile(file, text, 0o600))
	return file
}

// running is a started server.
type running struct {
	t      *testing.T
	server *Server
	stop   func() error
}

func (f *frontDoor) start(change func(*Options)) *running {
	f.t.Helper()
	client, err := LoadClient(f.kubeconfig())
	must(f.t, err)
	o := Options{Options: extension.Options{Client: client, BindAddress: "127.0.0.1", Register: true}, NodeName: "this-node", Metrics: MetricsOptions{Resolution: time.Second}}
	if change != nil {
		change(&o)
	}
	server, err := New(o)
	must(f.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	stop := sync.OnceValue(func() error { cancel(); return <-done })
	f.t.Cleanup(func() {
		if err := stop(); err != nil {
			f.t.Errorf("Run of the server failed: %v, want no error", err)
		}
	})
	select {
	case <-server.Ready():
	case err := <-done:
		done <- err
		f.t.Fatalf("server stopped before it was ready: %v, want a ready server", err)
	case <-time.After(time.Minute):
		f.t.Fatal("server is not ready after a minute, want a ready server")
	}
	return &running{t: f.t, server: server, stop: stop}
}

// client returns an HTTP client with a certificate of authority for leaf, or without a certificate.
func (s *running) client(authority *pki.Authority, leaf pki.Leaf) *http.Client {
	s.t.Helper()
	o := pki.ClientOptions{ServerName: "portico-extserver.kube-system.svc", Roots: s.server.CABundle()}
	if authority != nil {
		certPEM, keyPEM, err := authority.Issue(leaf)
		must(s.t, err)
		o.Certificate, err = pki.StaticKeyPair(certPEM, keyPEM)
		must(s.t, err)
	}
	config, err := pki.ClientConfig(o)
	must(s.t, err)
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: true}
	return &http.Client{Transport: transport}
}

func (s *running) get(c *http.Client, path string, headers ...string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "https://"+s.server.Address()+path, nil)
	must(s.t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	response, err := c.Do(r)
	must(s.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(s.t, err)
	return response.StatusCode, string(body)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var frontProxyLeaf = pki.Leaf{CommonName: "front-proxy-client", Client: true}

func asGroup(groups ...string) func(authorizationv1.SubjectAccessReviewSpec) bool {
	return func(s authorizationv1.SubjectAccessReviewSpec) bool {
		return slices.ContainsFunc(s.Groups, func(g string) bool { return slices.Contains(groups, g) })
	}
}

func describe(s authorizationv1.SubjectAccessReviewSpec) string {
	if a := s.ResourceAttributes; a != nil {
		return fmt.Sprintf("%s %s %s.%s/%s %s", s.User, a.Verb, a.Resource, a.Group, a.Version, a.Name)
	}
	return fmt.Sprintf("%s %s %s", s.User, s.NonResourceAttributes.Verb, s.NonResourceAttributes.Path)
}
