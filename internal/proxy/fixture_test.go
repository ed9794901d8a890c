package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/pki"
	"portico.dev/internal/request"
	"portico.dev/internal/transport"
)

const (
	serviceName = "metrics.kube-system.svc"
	apiService  = "v1.metrics.example.com"
	resource    = "/apis/metrics.example.com/v1/namespaces/ns1/nodes/a"
)

var alice = &user.DefaultInfo{Name: "alice", UID: "u-1", Groups: []string{"dev", "system:authenticated"}}

// testEnv is a front door with one backend, over real TLS on both sides.
type testEnv struct {
	t      *testing.T
	ca     *pki.Authority
	set    *transport.Set
	proxy  *Proxy
	logs   *observer.ObservedLogs
	front  string
	target Destination
	record *filters.Record                 // record of the next request; nil: none
	memory map[string]*enginetest.Listener // by address; nil: sockets. Complete before the first connection

	mu       sync.Mutex // guards the fields below
	user     user.Info
	deadline time.Duration
	prepare  func(http.ResponseWriter, *http.Request)
}

// newTestEnv starts a front door before a backend at the addresses.
func newTestEnv(t *testing.T, config Config, options transport.Options) *testEnv {
	t.Helper()
	return startEnv(&testEnv{t: t}, config, options)
}

// newMemoryEnv is like newTestEnv with all connections in memory, for a bubble.
func newMemoryEnv(t *testing.T, config Config, options transport.Options) *testEnv {
	t.Helper()
	w := &testEnv{t: t, memory: map[string]*enginetest.Listener{}}
	options.Tunnel = &transport.Tunnel{Network: "memory", Received: time.Now, Dial: w.connect}
	t.Cleanup(func() { time.Sleep(time.Minute) }) // net/http ends a connection a second after an error
	return startEnv(w, config, options)
}

// connect connects to an address of the environment.
func (w *testEnv) connect(ctx context.Context, address string) (net.Conn, error) {
	if w.memory != nil {
		l, ok := w.memory[address]
		if !ok {
			return nil, syscall.ECONNREFUSED
		}
		return l.Dial(ctx)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// listen returns a listener and its address.
func (w *testEnv) listen() (net.Listener, string) {
	w.t.Helper()
	if w.memory != nil {
		l, address := enginetest.Listen(), fmt.Sprintf("10.0.0.%d:443", len(w.memory)+1)
		w.memory[address] = l
		return l, address
	}
	return listenTCP(w.t)
}

func listenTCP(t testing.TB) (net.Listener, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l, l.Addr().String()
}

func startEnv(w *testEnv, config Config, options transport.Options) *testEnv {
	t := w.t
	t.Helper()
	ca, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	w.ca, w.user = ca, alice
	core, logs := observer.New(zapcore.DebugLevel)
	w.logs = logs
	config.Logger = zap.New(core)
	options.AllowLoopback = true
	if options.Engine == "" {
		options.Engine = enginetest.Backend(t)
	}
	options.Certificate = w.pair(pki.Leaf{CommonName: "front-proxy-client", Client: true})
	w.set = transport.New(options)
	t.Cleanup(w.set.Close)
	w.proxy = New(config)
	w.front = w.serve(http.HandlerFunc(w.chain))
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		w.proxy.Drain(now)
	})
	return w
}

// chain does the work of the chain before the proxy, as far as the proxy depends on it.
func (w *testEnv) chain(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	who, deadline, prepare, target, record := w.user, w.deadline, w.prepare, w.target, w.record
	w.mu.Unlock()
	info, err := request.NewResolver().Info(r)
	if err != nil {
		w.t.Error(err)
		return
	}
	ctx := apirequest.WithRequestInfo(r.Context(), info)
	if who != nil {
		ctx = apirequest.WithUser(ctx, who)
	}
	ctx = request.WithAuditID(ctx, "audit-1")
	rw.Header().Set("Audit-Id", "audit-1")
	rw.Header().Set("Cache-Control", "no-cache, private")
	if deadline > 0 && !request.LongRunning(info) {
		limited := &request.Context{Context: ctx}
		limited.SetDeadline(time.Now().Add(deadline))
		defer limited.Finish()
		ctx = limited
	}
	if prepare != nil {
		prepare(rw, r)
	}
	req := filters.RequestOf(r.WithContext(ctx))
	if record != nil {
		req.Record = record
	}
	w.proxy.Serve(rw, req, target)
}

func (w *testEnv) pair(l pki.Leaf) *pki.KeyPair {
	w.t.Helper()
	cert, key, err := w.ca.Issue(l)
	if err != nil {
		w.t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		w.t.Fatal(err)
	}
	return pair
}

func (w *testEnv) serving() *pki.KeyPair {
	return w.pair(pki.Leaf{CommonName: serviceName, DNSNames: []string{serviceName, "localhost"}, Server: true})
}

// backend makes the backend at the addresses the target.
func (w *testEnv) backend(addresses ...string) *transport.Backend {
	w.t.Helper()
	spec := transport.Spec{Name: "kube-system/metrics:443", ServerName: serviceName, CABundle: w.ca.PEM()}
	return w.register(spec, addresses...)
}

func (w *testEnv) register(spec transport.Spec, addresses ...string) *transport.Backend {
	w.t.Helper()
	for _, a := range addresses {
		spec.Endpoints = append(spec.Endpoints, transport.Endpoint{Address: a})
	}
	b, err := w.set.Backend(spec)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.target = Destination{Backend: b, APIService: apiService}
	return b
}

// serve starts an HTTPS server with HTTP/2.
func (w *testEnv) serve(h http.Handler) string {
	w.t.Helper()
	return w.serveProtos(h, "h2", "http/1.1")
}

func (w *testEnv) serveProtos(h http.Handler, protos ...string) string {
	w.t.Helper()
	config := pki.ServerConfig(w.serving())
	config.NextProtos = protos
	l, address := w.listen()
	w.t.Cleanup(serveTLSOn(l, config, h))
	return address
}

// serveTLS serves until stop is called, which waits.
func serveTLS(t testing.TB, config *tls.Config, h http.Handler) (address string, stop func()) {
	t.Helper()
	l, address := listenTCP(t)
	return address, serveTLSOn(l, config, h)
}

func serveTLSOn(l net.Listener, config *tls.Config, h http.Handler) (stop func()) {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(config.NextProtos[0] == "h2")
	s := &http.Server{Handler: h, TLSConfig: config, Protocols: p, ErrorLog: log.New(io.Discard, "", 0)}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.ServeTLS(l, "", "") })
	return func() { _ = s.Close(); wg.Wait() }
}

// raw starts a TLS server with handwritten connections, which are closed when handle returns or the test ends.
func (w *testEnv) raw(proto string, handle func(*tls.Conn)) string {
	w.t.Helper()
	config := pki.ServerConfig(w.serving())
	config.NextProtos = []string{proto}
	l, address := w.listen()
	var wg sync.WaitGroup
	stop, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer context.AfterFunc(stop, func() { _ = c.Close() })()
				tc := tls.Server(c, config)
				defer func() { _ = tc.Close() }()
				if tc.HandshakeContext(stop) == nil {
					handle(tc)
				}
			})
		}
	})
	w.t.Cleanup(func() { _ = l.Close(); cancel(); wg.Wait() })
	return address
}

// client returns a client of the front door.
func (w *testEnv) client(protos ...string) *http.Client {
	w.t.Helper()
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: "localhost", Roots: w.ca.PEM(), HTTP1Only: len(protos) > 0})
	if err != nil {
		w.t.Fatal(err)
	}
	dial := func(ctx context.Context, _, address string) (net.Conn, error) { return w.connect(ctx, address) }
	t := &http.Transport{DialContext: dial, TLSClientConfig: config, ForceAttemptHTTP2: len(protos) == 0, DisableCompression: true}
	w.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (w *testEnv) request(method, path string, body io.Reader) *http.Request {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, "https://"+w.front+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// answer is a response that was read to its end, or to an error.
type answer struct {
	*http.Response
	body string
	err  error
}

func (w *testEnv) do(c *http.Client, r *http.Request) answer {
	w.t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return answer{resp, string(body), err}
}

func (w *testEnv) get(path string) answer {
	w.t.Helper()
	return w.do(w.client(), w.request(http.MethodGet, path, nil))
}

func (a answer) status(t *testing.T) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal([]byte(a.body), &s); err != nil || s.Kind != "Status" {
		t.Fatalf("body of status %d = %q (error %v), want a Status", a.StatusCode, a.body, err)
	}
	return s
}

// dial opens a raw HTTP/1.1 connection to the front door.
func (w *testEnv) dial() (*tls.Conn, *bufio.Reader) {
	w.t.Helper()
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: "localhost", Roots: w.ca.PEM(), HTTP1Only: true})
	if err != nil {
		w.t.Fatal(err)
	}
	raw, err := w.connect(w.t.Context(), w.front)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = raw.Close() })
	c := tls.Client(raw, config)
	if err := c.HandshakeContext(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		w.t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

func send(t *testing.T, c net.Conn, lines ...string) {
	t.Helper()
	if _, err := io.WriteString(c, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
}

func (w *testEnv) deadAddress() string {
	w.t.Helper()
	// An address without other listeners on this machine: the port is not given to another process.
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil { // not every system has more than one loopback address
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("condition not met after %s: want %s", within, what)
		}
		<-tick.C
	}
}

// recorder is a backend that keeps the received requests.
type recorder struct {
	mu   sync.Mutex
	seen []*http.Request
}

func (b *recorder) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	b.mu.Lock()
	b.seen = append(b.seen, r)
	b.mu.Unlock()
	_, _ = io.WriteString(rw, "ok")
}

func (b *recorder) last(t *testing.T) *http.Request {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.seen) == 0 {
		t.Fatal("no request reached the backend, want at least 1")
	}
	return b.seen[len(b.seen)-1]
}

func (b *recorder) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.seen)
}

// expired serves with an expired certificate: issued for a second, and used after it.
func expired(w *testEnv) string {
	pair := w.pair(pki.Leaf{DNSNames: []string{serviceName}, Server: true, TTL: time.Second})
	eventually(w.t, 30*time.Second, "expired", func() bool { return time.Now().After(pair.Leaf().NotAfter) })
	l, address := w.listen()
	w.t.Cleanup(serveTLSOn(l, pki.ServerConfig(pair), nil))
	return address
}
