package http2_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"portico.dev/internal/httpengine"
	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/httpengine/portico/http2/server"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// net/http's HTTP/2 server does not wait for its connections when it is closed.
		goleak.IgnoreAnyFunction("net/http.(*http2serverConn).serve"),
		goleak.IgnoreAnyFunction("net/http.(*http2serverConn).runHandler"),
	)
}

// patience is the timeout of every wait.
const patience = time.Minute

// options are the options of a server under test. The defaults are 100 streams, 64 KiB of headers, windows of 1 MiB and timeouts of a
// minute.
type options struct {
	streams, headers, window int
	idle                     time.Duration
}

func (o options) filled() options {
	or := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	or(&o.streams, 100)
	or(&o.headers, 64<<10)
	or(&o.window, 1<<20)
	if o.idle == 0 {
		o.idle = time.Minute
	}
	return o
}

// testServer is the server under test.
type testServer struct {
	address  string
	connect  connector
	tls      *tls.Config // of the client
	shutdown func(context.Context) error
}

// connector makes a connection to a server.
type connector func(context.Context) (net.Conn, error)

// side is one of the servers that run the same cases.
type side struct {
	name string
	run  func(t *testing.T, l net.Listener, config *tls.Config, h http.Handler, o options) (shutdown func(context.Context) error)
}

const (
	library = "library"
	ours    = "ours"
	// fallback is net/http's server with --http-engine=library: behind the checks of package engine.
	fallback = "library engine"
)

var sides = []side{{library, runLibrary}, {ours, runOurs}, {fallback, runFallback}}

// onBothSides runs a test against both servers.
func onBothSides(t *testing.T, o options, h http.HandlerFunc, test func(t *testing.T, s *testServer, side string)) {
	t.Helper()
	for _, side := range sides {
		if side.name == fallback && o.window != 0 {
			continue // Its windows are fixed.
		}
		t.Run(side.name, func(t *testing.T) { test(t, side.start(t, o, h), side.name) })
	}
}

// onBothInTime is onBothSides in separate synctest bubbles, with connections in memory.
func onBothInTime(t *testing.T, o options, h http.HandlerFunc, test func(t *testing.T, s *testServer, side string)) {
	t.Helper()
	for _, side := range sides {
		t.Run(side.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, side.startInMemory(t, o, h), side.name) })
		})
	}
}

// certificate is for example.com. It is also valid in a bubble and made once.
var certificate = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s.TLS.Certificates[0], roots
})

func (s side) start(t *testing.T, o options, h http.Handler) *testServer {
	t.Helper()
	l, connect := listenTCP(t)
	return s.startOn(t, l, connect, o, h)
}

func (s side) startInMemory(t *testing.T, o options, h http.Handler) *testServer {
	t.Helper()
	t.Cleanup(func() { time.Sleep(time.Minute) }) // net/http's server ends a connection a second after its error.
	l := enginetest.Listen()
	return s.startOn(t, l, l.Dial, o, h)
}

func listenTCP(t *testing.T) (net.Listener, connector) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}
}

func (s side) startOn(t *testing.T, l net.Listener, connect connector, o options, h http.Handler) *testServer {
	t.Helper()
	cert, roots := certificate()
	config := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}}
	return &testServer{
		address:  l.Addr().String(),
		connect:  connect,
		tls:      &tls.Config{RootCAs: roots, ServerName: "example.com", NextProtos: []string{"h2"}},
		shutdown: s.run(t, l, config, h, o.filled()),
	}
}

func runLibrary(t *testing.T, l net.Listener, config *tls.Config, h http.Handler, o options) func(context.Context) error {
	s := &http.Server{
		Handler: h, TLSConfig: config, MaxHeaderBytes: o.headers, IdleTimeout: o.idle, ReadHeaderTimeout: time.Minute,
		DisableGeneralOptionsHandler: true, // Otherwise it would answer OPTIONS * directly.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: o.streams, MaxReceiveBufferPerConnection: o.window, MaxReceiveBufferPerStream: o.window,
			MaxReadFrameSize: 16 << 10,
		},
		Protocols: new(http.Protocols), ErrorLog: quiet(),
	}
	s.Protocols.SetHTTP2(true)
	var all sync.WaitGroup
	all.Go(func() { _ = s.ServeTLS(l, "", "") })
	t.Cleanup(func() { _ = s.Close(); all.Wait() })
	return s.Shutdown
}

func runOurs(t *testing.T, l net.Listener, config *tls.Config, h http.Handler, o options) func(context.Context) error {
	s := server.New(server.Config{
		Handler: h, MaxConcurrentStreams: o.streams, MaxHeaderBytes: o.headers, StreamWindow: o.window, ConnWindow: o.window,
		IdleTimeout: o.idle, PrefaceTimeout: time.Minute, HeaderTimeout: time.Minute, PingAfter: time.Minute, PingTimeout: time.Minute,
		GoAwayGrace: 150 * time.Millisecond,
	})
	return listen(t, l, config, s)
}

func runFallback(t *testing.T, l net.Listener, config *tls.Config, h http.Handler, o options) func(context.Context) error {
	s := httpengine.NewServer(httpengine.Library, engine.ServerConfig{
		Handler: h, MaxConcurrentStreams: o.streams, MaxHeaderBytes: o.headers, IdleTimeout: o.idle,
		HeaderTimeout: time.Minute, PingAfter: time.Minute, PingTimeout: time.Minute, StallTimeout: time.Minute,
	})
	return listen(t, l, config, engineServer{s})
}

// engineServer is an engine.Server for HTTP/2 only.
type engineServer struct{ engine.Server }

func (s engineServer) Begin(c *tls.Conn) func() { return s.Server.Begin(c, func() {}) }

// listen lets s serve the connections of l.
func listen(t *testing.T, l net.Listener, config *tls.Config, s interface {
	Begin(*tls.Conn) (serve func())
	Shutdown(context.Context) error
	Close()
}) func(context.Context) error {
	var all sync.WaitGroup
	all.Go(func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				c := tls.Server(raw, config)
				if c.Handshake() != nil {
					_ = raw.Close()
					return
				}
				s.Begin(c)()
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); s.Close(); all.Wait() })
	return func(ctx context.Context) error {
		_ = l.Close()
		return s.Shutdown(ctx)
	}
}

// client returns net/http's client with separate connections.
func (s *testServer) client(t *testing.T) *http.Client {
	tr := &http.Transport{TLSClientConfig: s.tls.Clone(), ForceAttemptHTTP2: true, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{
		Transport: tr, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// startSlow starts Portico's server in memory with short timeouts for clients.
func startSlow(t *testing.T, h http.Handler, little time.Duration) *testServer {
	t.Helper()
	slow := side{ours, func(t *testing.T, l net.Listener, config *tls.Config, h http.Handler, _ options) func(context.Context) error {
		return listen(t, l, config, server.New(server.Config{
			Handler: h, PrefaceTimeout: little, HeaderTimeout: little, IdleTimeout: time.Minute, PingAfter: little, PingTimeout: little,
		}))
	}}
	return slow.startInMemory(t, options{}, h)
}
