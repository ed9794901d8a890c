package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/pki"
	"portico.dev/internal/proxy"
	"portico.dev/internal/request"
	"portico.dev/internal/transport"
)

func TestMain(m *testing.M) {
	if serveBenchmark() {
		return
	}
	goleak.VerifyTestMain(m)
}

// env is a front door with one cluster. All connections are in memory and have TLS.
type env struct {
	t           *testing.T
	ca, clients *pki.Authority
	credentials *StaticCredentials
	cluster     *Cluster
	proxy       *proxy.Proxy
	servers     []*apiServer
	client      *http.Client

	mu        sync.Mutex // guards the fields below
	listeners map[string]*enginetest.Listener
}

const (
	frontAddress = "10.1.0.1:443"
	testToken    = "token-of-the-front-door"
)

// inBubble runs a test with a cluster of n API servers in virtual time.
func inBubble(t *testing.T, n int, test func(t *testing.T, e *env), change ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // net/http ends connections a second after an error
		e := newEnv(t, n, change...)
		e.run()
		test(t, e)
	})
}

func newEnv(t *testing.T, n int, change ...func(*Config)) *env {
	t.Helper()
	e := &env{t: t, credentials: &StaticCredentials{}, listeners: map[string]*enginetest.Listener{}}
	e.ca, e.clients = newAuthority(t, "serving"), newAuthority(t, "clients")
	if err := e.credentials.Use(testToken, nil, nil); err != nil {
		t.Fatal(err)
	}
	e.proxy = proxy.New(proxy.Config{})
	c := Config{
		Name: "prod", Credentials: e.credentials, Identify: identifyAlike, Proxy: e.proxy, Logger: zap.NewNop(),
		Transport: transport.Options{
			Engine: enginetest.Backend(t), Tunnel: &transport.Tunnel{Network: "memory", Received: time.Now, Dial: e.dial},
		},
	}
	for i := range n {
		a := &apiServer{env: e, address: fmt.Sprintf("10.0.0.%d:6443", i+1)}
		a.handle(http.NotFound)
		a.setReady(http.StatusOK, "ok")
		a.start()
		e.servers = append(e.servers, a)
		c.Server.Endpoints = append(c.Server.Endpoints, a.address)
	}
	c.Server.CABundle = e.ca.PEM()
	for _, f := range change {
		f(&c)
	}
	var err error
	if e.cluster, err = New(c); err != nil {
		t.Fatal(err)
	}
	e.serveFront()
	return e
}

func newAuthority(t testing.TB, name string) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// identifyAlike sends the user in an impersonation header, and a client's token unchanged.
func identifyAlike(header http.Header, r *filters.Request) error {
	if token := r.Header.Get("X-Test-Token"); token != "" {
		header.Set("Authorization", "Bearer "+token)
		return nil
	}
	header.Set("Impersonate-User", r.UserName)
	return nil
}

// run runs the cluster until the test ends, and waits for the first probes.
func (e *env) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.cluster.Run(ctx) }()
	e.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			e.t.Errorf("Run() = %v, want no error", err)
		}
	})
	time.Sleep(time.Second)
	synctest.Wait()
}

func (e *env) dial(ctx context.Context, address string) (net.Conn, error) {
	e.mu.Lock()
	l := e.listeners[address]
	e.mu.Unlock()
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	return l.Dial(ctx)
}

func (e *env) listen(address string) *enginetest.Listener {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listeners[address] = enginetest.Listen()
	return e.listeners[address]
}

// serveFront serves the cluster to clients, whose user is in the header X-Test-User.
func (e *env) serveFront() {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := request.NewResolver().Info(r)
		if err != nil {
			e.t.Error(err)
			return
		}
		who := &user.DefaultInfo{Name: r.Header.Get("X-Test-User")}
		if who.Name == "" {
			who.Name = "alice"
		}
		ctx := apirequest.WithUser(apirequest.WithRequestInfo(r.Context(), info), who)
		e.cluster.Serve(w, filters.RequestOf(r.WithContext(ctx)))
	})
	stop := e.serve(frontAddress, handler, pki.ServerConfig(e.serving()), nil)
	e.t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		e.proxy.Drain(now)
		_ = stop.Close()
	})
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: DefaultServerName, Roots: e.ca.PEM(), HTTP1Only: true})
	if err != nil {
		e.t.Fatal(err)
	}
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return e.dial(ctx, frontAddress) }, TLSClientConfig: config}
	e.t.Cleanup(t.CloseIdleConnections)
	e.client = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (e *env) serving() *pki.KeyPair {
	e.t.Helper()
	return e.pair(e.ca, pki.Leaf{CommonName: "kube-apiserver", DNSNames: []string{DefaultServerName}, Server: true})
}

func (e *env) pair(a *pki.Authority, l pki.Leaf) *pki.KeyPair {
	e.t.Helper()
	cert, key, err := a.Issue(l)
	if err != nil {
		e.t.Fatal(err)
	}
	made, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		e.t.Fatal(err)
	}
	return made
}

func (e *env) serve(address string, h http.Handler, config *tls.Config, state func(net.Conn, http.ConnState)) *http.Server {
	e.t.Helper()
	config.NextProtos = []string{"h2", "http/1.1"}
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	s := &http.Server{Handler: h, TLSConfig: config, Protocols: p, ConnState: state, ErrorLog: log.New(io.Discard, "", 0)}
	l := e.listen(address)
	go func() { _ = s.ServeTLS(l, "", "") }()
	return s
}

// answer is a response that has been read to its end.
type answer struct {
	*http.Response
	body string
	err  error
}

// do sends a request with header fields, given in pairs.
func (e *env) do(method, path string, fields ...string) answer {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), method, "https://front"+path, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	resp, err := e.client.Do(r)
	if err != nil {
		e.t.Fatalf("%s %s = %v, want a response", method, path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp, string(body), err}
}

func (e *env) get(path string, fields ...string) answer {
	e.t.Helper()
	return e.do(http.MethodGet, path, fields...)
}

// hold sends n requests whose responses do not end before the test, unless an API server ends them.
func (e *env) hold(n int) {
	for range n {
		r, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, "https://front/api/v1/pods?watch=true", nil)
		if err != nil {
			e.t.Fatal(err)
		}
		resp, err := e.client.Do(r)
		if err != nil {
			e.t.Fatal(err)
		}
		e.t.Cleanup(func() { _ = resp.Body.Close() })
		synctest.Wait()
	}
}

// apiServer is an API server that fails on demand.
type apiServer struct {
	env      *env
	address  string
	requests atomic.Int64 // without probes
	probes   atomic.Int64
	conns    atomic.Int64 // opened
	handler  atomic.Pointer[http.HandlerFunc]
	ready    atomic.Pointer[http.HandlerFunc]
	server   *http.Server
}

func (a *apiServer) start() {
	a.env.t.Helper()
	a.server = a.env.serve(a.address, a, pki.ServerConfig(a.env.serving()), func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			a.conns.Add(1)
		}
	})
	a.env.t.Cleanup(a.kill)
}

func (a *apiServer) kill() { _ = a.server.Close() }

func (a *apiServer) handle(h http.HandlerFunc) { a.handler.Store(&h) }

func (a *apiServer) setReady(code int, body string) {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	})
	a.ready.Store(&h)
}

// hang lets all requests wait until the client gives up.
func (a *apiServer) hang() {
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	a.ready.Store(&h)
	a.handle(h)
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/readyz":
		a.probes.Add(1)
		(*a.ready.Load())(w, r)
		return
	case strings.HasPrefix(r.URL.Path, "/api/v1/"), strings.HasPrefix(r.URL.Path, "/apis/metrics"):
		a.requests.Add(1)
	}
	(*a.handler.Load())(w, r)
}

// handleAll sets the handler of all API servers.
func (e *env) handleAll(h http.HandlerFunc) {
	for _, a := range e.servers {
		a.handle(h)
	}
}

// served returns the number of requests at each API server since the last call.
func (e *env) served() []int64 {
	var list []int64
	for _, a := range e.servers {
		list = append(list, a.requests.Swap(0))
	}
	return list
}

// settle waits in virtual time.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// text answers requests with a text.
func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
}

// whoami answers requests with the user that an API server would see: a certificate is preferred to a token.
func whoami(w http.ResponseWriter, r *http.Request) {
	who := r.Header.Get("Authorization")
	if len(r.TLS.PeerCertificates) > 0 {
		who = "certificate " + r.TLS.PeerCertificates[0].Subject.CommonName
	}
	_, _ = fmt.Fprintf(w, "%s as %q", who, r.Header.Get("Impersonate-User"))
}
