package front

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/internal/pki"
	"portico.dev/internal/run/freeport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds waits that take milliseconds on an idle machine.
const patience = time.Minute

// apiServer is an API server that fails on demand.
type apiServer struct {
	*httptest.Server
	mu       sync.Mutex // guards the fields below
	requests []*http.Request
	handler  http.HandlerFunc
}

const token = "the-token-of-the-kubeconfig"

// newAPIServer starts an API server whose responses come from handler, and returns a client configuration for it.
func newAPIServer(t *testing.T, handler http.HandlerFunc) (*apiServer, *rest.Config) {
	t.Helper()
	a := &apiServer{handler: handler}
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(a.serve))
	a.EnableHTTP2 = true
	a.StartTLS()
	t.Cleanup(a.Close)
	return a, &rest.Config{Host: a.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: encodeCertificate(a.Certificate().Raw)}}
}

func (a *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.requests = append(a.requests, r.Clone(context.Background()))
	handler := a.handler
	a.mu.Unlock()
	handler(w, r)
}

// of returns the last request for a path.
func (a *apiServer) of(t *testing.T, path string) *http.Request {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := len(a.requests) - 1; i >= 0; i-- {
		if a.requests[i].URL.Path == path {
			return a.requests[i]
		}
	}
	t.Fatalf("no request for %s arrived", path)
	return nil
}

// setHandler replaces the handler.
func (a *apiServer) setHandler(h http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handler = h
}

// start runs a front for an API server until the test ends, and returns its URL and a client with its kubeconfig.
func start(t *testing.T, config *rest.Config) (url string, client *http.Client, file []byte) {
	t.Helper()
	c := Default()
	c.Client, c.MemoryLimit = config, "0"
	return serve(t, c)
}

func serve(t *testing.T, c Config) (url string, client *http.Client, file []byte) {
	t.Helper()
	f, err := New(c, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v, want no error", err)
		}
	})
	select {
	case <-f.Ready():
	case err := <-done:
		done <- err
		t.Fatalf("Run() ended with %v, want it to serve", err)
	case <-time.After(patience):
		t.Fatal("the front is not ready after a minute")
	}
	if file, err = f.Kubeconfig("team"); err != nil {
		t.Fatal(err)
	}
	own, err := clientcmd.RESTConfigFromKubeConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	if client, err = rest.HTTPClientFor(own); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(client.Transport) })
	return f.URL(), client, file
}

// get sends a GET with header fields, given in pairs, and returns the response with its body.
func get(t *testing.T, client *http.Client, url string, fields ...string) (*http.Response, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// echo answers every request with its path.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"path":%q}`, r.URL.RequestURI())
}

func TestRequestsHaveTheCredentialsOfTheKubeconfig(t *testing.T) {
	server, config := newAPIServer(t, echo)
	url, client, _ := start(t, config)
	resp, body := get(t, client, url+"/api/v1/pods?limit=5&labelSelector=a%3Db", "Authorization", "Bearer other", "X-Remote-User", "root")
	if want := `{"path":"/api/v1/pods?limit=5&labelSelector=a%3Db"}`; resp.StatusCode != http.StatusOK || body != want {
		t.Errorf("GET = %d %s, want 200 %s", resp.StatusCode, body, want)
	}
	arrived := server.of(t, "/api/v1/pods")
	if got, want := arrived.Header.Get("Authorization"), "Bearer "+token; got != want {
		t.Errorf("Authorization = %q, want %q", got, want)
	}
	if got := arrived.Header.Get("X-Remote-User"); got != "" {
		t.Errorf("X-Remote-User = %q, want none", got)
	}
	if got := arrived.Header.Get("Via"); got != "1.1 portico-front" {
		t.Errorf("Via = %q, want that of a front: a front door behind it refuses its own", got)
	}
	if got, want := arrived.Host, strings.TrimPrefix(server.URL, "https://"); got != want {
		t.Errorf("Host = %q, want %q", got, want)
	}
}

func TestAPIServerBelowAPath(t *testing.T) {
	_, config := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/proxy") {
			http.Redirect(w, r, r.URL.Path+"/", http.StatusMovedPermanently)
			return
		}
		echo(w, r)
	})
	config.Host += "/k8s/clusters/c-1"
	url, client, _ := start(t, config)
	for _, path := range []string{"/api/v1/pods", "/apis", "/openapi/v3", "/version", "/logs/"} {
		if _, body := get(t, client, url+path); !strings.Contains(body, `"/k8s/clusters/c-1`+path+`"`) {
			t.Errorf("GET %s = %s, want it to arrive below /k8s/clusters/c-1", path, body)
		}
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, _ := get(t, client, url+"/api/v1/namespaces/default/services/web/proxy")
	if got, want := resp.Header.Get("Location"), "/api/v1/namespaces/default/services/web/proxy/"; got != want {
		t.Errorf("Location = %q (%d), want %q", got, resp.StatusCode, want)
	}
}

func TestRedirectToAnotherServerIsRefused(t *testing.T) {
	for _, location := range []string{"https://evil.example.com/api", "http://evil.example.com", "//evil.example.com/", `/\evil.example.com`, "https://user@HOST/"} {
		_, config := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", strings.ReplaceAll(location, "HOST", r.Host))
			w.WriteHeader(http.StatusFound)
		})
		url, client, _ := start(t, config)
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		resp, body := get(t, client, url+"/api/v1/namespaces/default/services/web/proxy/")
		if resp.StatusCode != http.StatusBadGateway || resp.Header.Get("Location") != "" {
			t.Errorf("redirect to %s = %d to %q (%s), want 502 without a Location", location, resp.StatusCode, resp.Header.Get("Location"), body)
		}
	}
}

func TestAPIServerDecidesAboutImpersonation(t *testing.T) {
	server, config := newAPIServer(t, echo)
	config.Impersonate = rest.ImpersonationConfig{UserName: "of-the-kubeconfig", Groups: []string{"its-group"}}
	url, client, _ := start(t, config)
	get(t, client, url+"/api/v1/secrets")
	if got := server.of(t, "/api/v1/secrets").Header; got.Get("Impersonate-User") != "of-the-kubeconfig" || got.Get("Impersonate-Group") != "its-group" {
		t.Errorf("impersonation of the kubeconfig arrived as %v", got)
	}
	get(t, client, url+"/apis", "Impersonate-User", "bob", "Impersonate-Extra-Scopes", "a")
	got := server.of(t, "/apis").Header
	if got.Get("Impersonate-User") != "bob" || got["Impersonate-Group"] != nil || got.Get("Impersonate-Extra-Scopes") != "a" {
		t.Errorf("impersonation of the client arrived as %v, want bob with his extra and without groups", got)
	}
}

func TestOnlyTheWrittenKubeconfigIsAccepted(t *testing.T) {
	_, config := newAPIServer(t, echo)
	url, _, file := start(t, config)
	own, err := clientcmd.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := own.Contexts[own.CurrentContext].Namespace; got != "team" {
		t.Errorf("namespace of the kubeconfig = %q, want that of the cluster's kubeconfig, team", got)
	}
	anonymous, err := pki.ClientConfig(pki.ClientOptions{Roots: own.Clusters[own.Contexts[own.CurrentContext].Cluster].CertificateAuthorityData})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: anonymous}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := client.Do(r); err == nil {
		resp.Body.Close()
		t.Errorf("GET without the certificate of the kubeconfig = %d, want no connection", resp.StatusCode)
	}
}

func TestDocumentsStayAvailableWithoutTheAPIServer(t *testing.T) {
	var version atomic.Int32
	version.Store(1)
	server, config := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/openapi/v3":
			_, _ = io.WriteString(w, `{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=AB"}}}`)
		case r.URL.Path == "/apis" && strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList"):
			w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			etag := fmt.Sprintf("\"e%d\"", version.Load())
			w.Header().Set("ETag", etag)
			w.Header().Set("Warning", `299 - "of the API server"`)
			if r.Header.Get("If-None-Match") == etag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			fmt.Fprintf(w, `{"kind":"APIGroupDiscoveryList","version":"%d"}`, version.Load())
		default:
			echo(w, r)
		}
	})
	url, client, _ := start(t, config)
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
	resp, body := get(t, client, url+"/apis?timeout=32s", "Accept", aggregated)
	if want := `"version":"1"`; !strings.Contains(body, want) || resp.Header.Get("ETag") != `"e1"` {
		t.Errorf("GET /apis = %s with ETag %s, want %s with that of the API server", body, resp.Header.Get("ETag"), want)
	}
	resp, _ = get(t, client, url+"/apis", "Accept", aggregated, "If-None-Match", `"e1"`)
	if want := []string{`299 - "of the API server"`}; resp.StatusCode != http.StatusNotModified || !slices.Equal(resp.Header["Warning"], want) {
		t.Errorf("GET /apis with the current ETag = %d with warnings %q, want 304 with %q", resp.StatusCode, resp.Header["Warning"], want)
	}
	version.Store(2)
	if _, body := get(t, client, url+"/apis", "Accept", aggregated); !strings.Contains(body, `"version":"2"`) {
		t.Errorf("GET /apis after a change = %s, want version 2: documents are as current as the API server's", body)
	}

	server.Close()
	for _, c := range []struct{ path, accept, want string }{
		{"/apis", aggregated, `"version":"2"`},
		{"/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", `"version":"2"`}, // a form that nobody has requested
		{"/apis?timeout=1s", "application/json", `{"path":"/apis"}`},
		{"/api", "application/json", `{"path":"/api"}`},
		{"/version", "", `{"path":"/version"}`},
		{"/openapi/v3", "application/json", "hash=AB"},
		{"/openapi/v3/api/v1?hash=AB", "application/json", `{"path":"/openapi/v3/api/v1?hash=AB"}`},
	} {
		resp, body := get(t, client, url+c.path, "Accept", c.accept)
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, c.want) {
			t.Errorf("GET %s (%s) without the API server = %d %s, want 200 with %s", c.path, c.accept, resp.StatusCode, body, c.want)
		}
		if warned := strings.Join(resp.Header["Warning"], ","); !strings.Contains(c.path, "hash") && !strings.Contains(warned, "does not answer; this document is of ") {
			t.Errorf("GET %s: Warning = %q, want one that says that the document is not current", c.path, warned)
		}
	}
	resp, body = get(t, client, url+"/api/v1/pods")
	var status metav1.Status
	if err := json.Unmarshal([]byte(body), &status); err != nil || resp.StatusCode != http.StatusServiceUnavailable || status.Reason != metav1.StatusReasonServiceUnavailable {
		t.Fatalf("GET /api/v1/pods without the API server = %d %s (%v), want a Status with 503", resp.StatusCode, body, err)
	}
	if want := "the API server at " + strings.TrimPrefix(server.URL, "https://"); !strings.Contains(status.Message, want) || !strings.Contains(status.Message, "it refused the connection") {
		t.Errorf("message = %q, want one that names %q and the cause", status.Message, want)
	}
}

func TestUnavailableAPIServiceIsExplained(t *testing.T) {
	var condition atomic.Value
	condition.Store("False")
	_, config := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"metadata":{"name":"v1beta1.metrics.k8s.io"},"status":{"conditions":[{"type":"Available","status":%q,
				"reason":"FailedDiscoveryCheck","message":"no route to host","lastTransitionTime":"2026-11-30T10:00:00Z"}]}}`, condition.Load())
		case "/apis/apiregistration.k8s.io/v1/apiservices/v1.secret.example.com":
			http.Error(w, "you may not", http.StatusForbidden)
		default:
			http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		}
	})
	url, client, _ := start(t, config)
	for _, path := range []string{"/apis/metrics.k8s.io/v1beta1/nodes", "/apis/metrics.k8s.io/v1beta1"} {
		resp, body := get(t, client, url+path)
		want := "APIService v1beta1.metrics.k8s.io is unavailable (FailedDiscoveryCheck since 2026-11-30T10:00:00Z): no route to host"
		if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, want) {
			t.Errorf("GET %s = %d %s, want 503 with %q", path, resp.StatusCode, body, want)
		}
	}
	if resp, body := get(t, client, url+"/apis/secret.example.com/v1/things"); resp.StatusCode != http.StatusServiceUnavailable || body != "service unavailable\n" {
		t.Errorf("503 of an APIService that may not be read = %d %s, want that of the API server", resp.StatusCode, body)
	}
	condition.Store("True")
	if resp, body := get(t, client, url+"/apis/metrics.k8s.io/v1beta1/nodes"); resp.StatusCode != http.StatusServiceUnavailable || body != "service unavailable\n" {
		t.Errorf("503 of an available APIService = %d %s, want that of the extension server", resp.StatusCode, body)
	}
}

// upgrading answers an upgrade, and echoes the bytes of the connection.
func upgrading(w http.ResponseWriter, r *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Authorization: %s\r\n\r\n", r.Header.Get("Upgrade"), r.Header.Get("Authorization"))
	_, _ = io.Copy(conn, buffered)
}

func TestUpgradedConnection(t *testing.T) {
	_, config := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			upgrading(w, r)
			return
		}
		echo(w, r)
	})
	url, _, file := start(t, config)
	own, err := clientcmd.RESTConfigFromKubeConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	settings, err := rest.TLSConfigFor(own)
	if err != nil {
		t.Fatal(err)
	}
	settings.NextProtos = []string{"http/1.1"}
	conn, err := (&tls.Dialer{Config: settings}).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /api/v1/namespaces/default/pods/web/exec?command=sh HTTP/1.1\r\nHost: front\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n")
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("X-Authorization") != "Bearer "+token {
		t.Fatalf("upgrade = %d with Authorization %q, want 101 with the token of the kubeconfig", resp.StatusCode, resp.Header.Get("X-Authorization"))
	}
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(reader, got); err != nil || string(got) != "hello" {
		t.Errorf("the connection returned %q, %v; want hello", got, err)
	}
}

// A shell may have the kubeconfig of a front that has ended, whose port the next front has.
func TestFrontOfItselfIsRefused(t *testing.T) {
	_, config := newAPIServer(t, echo)
	_, _, file := start(t, config)
	own, err := clientcmd.RESTConfigFromKubeConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	port, err := new(freeport.Ports).Free()
	if err != nil {
		t.Fatal(err)
	}
	own.Host = fmt.Sprintf("https://127.0.0.1:%d", port)
	c := Default()
	c.Client, c.MemoryLimit, c.SecurePort = own, "0", port
	url, client, _ := serve(t, c)
	resp, body := get(t, client, url+"/api/v1/pods")
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "is this front itself") {
		t.Errorf("GET through a front of itself = %d %s, want 503 because of the loop", resp.StatusCode, body)
	}
}

func TestInvalidConfigurationsAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"address of the network": {func(c *Config) { c.BindAddress = "0.0.0.0" }, "--bind-address"},
		"no address":             {func(c *Config) { c.BindAddress = "" }, "--bind-address"},
		"port":                   {func(c *Config) { c.SecurePort = 70000 }, "--secure-port"},
		"without TLS":            {func(c *Config) { c.Client.Host, c.Client.CAData = "http://localhost:8080", nil }, "https only"},
		"proxy":                  {func(c *Config) { c.Client.Proxy = http.ProxyURL(mustParse("ftp://proxy")) }, "ftp://proxy"},
	} {
		t.Run(name, func(t *testing.T) {
			_, config := newAPIServer(t, echo)
			c := Default()
			c.Client, c.MemoryLimit = config, "0"
			test.change(&c)
			if _, err := New(c, zap.NewNop()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("New = %v, want an error with %q", err, test.want)
			}
		})
	}
}

// A plugin issues credentials, and others after the API server has refused them.
func TestCredentialsOfAPlugin(t *testing.T) {
	dir := t.TempDir()
	plugin := dir + "/plugin"
	script := `#!/bin/sh
count=$(cat ` + dir + `/count 2>/dev/null || echo 0)
count=$((count + 1))
echo $count > ` + dir + `/count
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"token-'$count'"}}'
`
	if err := os.WriteFile(plugin, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	var refused atomic.Value
	refused.Store("Bearer none")
	server, config := newAPIServer(t, nil)
	server.setHandler(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == refused.Load() {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, r.Header.Get("Authorization"))
	})
	config.BearerToken = ""
	config.ExecProvider = execConfig(plugin)
	url, client, _ := start(t, config)
	_, first := get(t, client, url+"/api/v1/pods")
	if !strings.HasPrefix(first, "Bearer token-") {
		t.Fatalf("Authorization = %q, want the token of the plugin", first)
	}
	refused.Store(first)
	if resp, _ := get(t, client, url+"/api/v1/pods"); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("refused token = %d, want 401", resp.StatusCode)
	}
	if _, next := get(t, client, url+"/api/v1/pods"); next == first || !strings.HasPrefix(next, "Bearer token-") {
		t.Errorf("Authorization after a 401 = %q, want another token than %q", next, first)
	}
}

// Connections pass the proxy of the kubeconfig.
func TestProxyOfTheKubeconfig(t *testing.T) {
	server, config := newAPIServer(t, echo)
	var asked []string
	var mu sync.Mutex
	through := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.Host+" "+r.Header.Get("Proxy-Authorization"))
		mu.Unlock()
		far, err := net.Dial("tcp", r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer far.Close()
		w.WriteHeader(http.StatusOK)
		near, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer near.Close()
		go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
		_, _ = io.Copy(near, far)
	}))
	t.Cleanup(through.Close)
	config.Proxy = http.ProxyURL(mustParse(strings.Replace(through.URL, "http://", "http://me:secret@", 1)))
	url, client, _ := start(t, config)
	if _, body := get(t, client, url+"/api/v1/pods"); body != `{"path":"/api/v1/pods"}` {
		t.Errorf("GET through the proxy = %s, want the response of the API server", body)
	}
	mu.Lock()
	defer mu.Unlock()
	want := "CONNECT " + strings.TrimPrefix(server.URL, "https://") + " Basic bWU6c2VjcmV0"
	if len(asked) == 0 || asked[0] != want {
		t.Errorf("the proxy was asked %q, want %q", asked, want)
	}
}
