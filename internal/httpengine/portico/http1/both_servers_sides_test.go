package http1

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// net/http's server does not wait for its connections when it is closed.
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"),
	)
}

// never is the timeout of every wait.
const never = 30 * time.Second

// rules are the options of a server under test. The defaults are timeouts of a minute, 64 KiB of header, and a disconnect check after
// a millisecond.
type rules struct {
	head, idle, listen time.Duration
	bytes              int
	tls                bool
}

func (r rules) filled() rules {
	or := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	or(&r.head, time.Minute)
	or(&r.idle, time.Minute)
	or(&r.listen, time.Millisecond)
	if r.bytes == 0 {
		r.bytes = 64 << 10
	}
	return r
}

// implementation is one of the two servers that run the same cases.
type implementation struct {
	name string
	// run serves connections until its queue is closed and returns when all have ended.
	run func(h http.Handler, r rules, log io.Writer) (serve func(net.Conn), shutdown func(context.Context) error, cut func())
}

const (
	library = "library"
	ours    = "ours"
)

var implementations = []implementation{{library, runLibrary}, {ours, runOurs}}

// serverUnderTest is a server under test with its dialer.
type serverUnderTest struct {
	name     string
	listener net.Listener
	rules    rules
	config   *tls.Config // the server's, if it uses TLS
	served   chan net.Conn
	shutdown func(context.Context) error
	cut      func()
	said     record
}

// record contains the log of a server.
type record struct {
	mu   sync.Mutex // guards the fields below
	text bytes.Buffer
}

// Write implements io.Writer.
func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// onBoth runs a test against both servers.
func onBoth(t *testing.T, r rules, h http.HandlerFunc, test func(t *testing.T, a *serverUnderTest)) {
	t.Helper()
	for _, p := range implementations {
		t.Run(p.name, func(t *testing.T) { test(t, p.open(t, r, h)) })
	}
}

func (p implementation) open(t testing.TB, r rules, h http.Handler) *serverUnderTest {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &serverUnderTest{name: p.name, listener: l, rules: r.filled(), served: make(chan net.Conn, 1024)}
	if r.tls {
		cert, _ := certificate()
		a.config = &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
	}
	serve, shutdown, cut := p.run(h, a.rules, &a.said)
	a.shutdown, a.cut = shutdown, cut
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { a.take(c, serve) })
		}
	})
	all.Go(func() {
		for c := range a.served {
			all.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		close(a.served)
		cut()
		all.Wait()
	})
	return a
}

func (a *serverUnderTest) take(c net.Conn, serve func(net.Conn)) {
	if a.config != nil {
		secure := tls.Server(c, a.config)
		if secure.Handshake() != nil {
			_ = c.Close()
			return
		}
		c = secure
	}
	serve(c)
}

// certificate is for example.com and made once.
var certificate = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s.TLS.Certificates[0], roots
})

// dial connects over TCP, with TLS if configured.
func (a *serverUnderTest) dial(t testing.TB) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", a.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if a.config != nil {
		_, roots := certificate()
		c = tls.Client(c, &tls.Config{RootCAs: roots, ServerName: "example.com", NextProtos: []string{"http/1.1"}})
	}
	_ = c.SetDeadline(time.Now().Add(never))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// pipe connects in memory. Each write is received by a separate read.
func (a *serverUnderTest) pipe(t testing.TB) net.Conn {
	t.Helper()
	c, s := net.Pipe()
	_ = c.SetDeadline(time.Now().Add(never))
	t.Cleanup(func() { _ = c.Close() })
	a.served <- s
	return c
}

// hear sends each part with a separate write and returns everything it receives. Over TCP it then closes the write side. It does not
// do so over TLS: the unread alert could cause a reset of the connection and the loss of the last response.
func hear(t testing.TB, c net.Conn, parts ...string) string {
	t.Helper()
	var sending sync.WaitGroup
	sending.Go(func() {
		for _, part := range parts {
			if _, err := io.WriteString(c, part); err != nil {
				return // The received bytes contain the reason.
			}
		}
		if half, ok := c.(*net.TCPConn); ok {
			_ = half.CloseWrite()
		}
	})
	b, err := io.ReadAll(c)
	if err != nil && isTimeout(err) {
		t.Errorf("connection neither ended nor sent more after %q, want its end", end(string(b)))
	}
	_ = c.Close()
	sending.Wait()
	return string(b)
}

func end(s string) string { return s[max(0, len(s)-200):] }

// once is a listener for existing connections.
type once struct {
	conns chan net.Conn
	gone  chan struct{}
	close func()
}

// Accept implements net.Listener.
func (o *once) Accept() (net.Conn, error) {
	select {
	case c := <-o.conns:
		return c, nil
	case <-o.gone:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (o *once) Close() error { o.close(); return nil }

// Addr implements net.Listener.
func (o *once) Addr() net.Addr { return &net.TCPAddr{} }

func runLibrary(h http.Handler, r rules, said io.Writer) (func(net.Conn), func(context.Context) error, func()) {
	s := &http.Server{
		Handler: h, MaxHeaderBytes: r.bytes, ReadHeaderTimeout: r.head, IdleTimeout: r.idle, ErrorLog: log.New(said, "", 0),
		DisableGeneralOptionsHandler: true, // Otherwise it would answer OPTIONS * directly.
		Protocols:                    new(http.Protocols),
	}
	s.Protocols.SetHTTP1(true)
	l := &once{conns: make(chan net.Conn), gone: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.gone) })
	var all sync.WaitGroup
	all.Go(func() { _ = s.Serve(l) })
	return func(c net.Conn) {
			select {
			case l.conns <- c:
			case <-l.gone:
				_ = c.Close()
			}
		}, s.Shutdown, func() {
			_ = s.Close()
			all.Wait()
		}
}

func runOurs(h http.Handler, r rules, said io.Writer) (func(net.Conn), func(context.Context) error, func()) {
	s := New(Config{
		Handler: h, BaseServer: &http.Server{}, MaxHeaderBytes: r.bytes, HeaderTimeout: r.head, IdleTimeout: r.idle, DisconnectCheckDelay: r.listen,
		Logf: log.New(said, "", 0).Printf,
	})
	serve := func(c net.Conn) {
		if secure, ok := c.(*tls.Conn); ok {
			s.Begin(secure, func() {})()
			return
		}
		s.begin(c, c, nil, func() {})()
	}
	return serve, s.Shutdown, s.Close
}
