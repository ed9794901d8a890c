// Package http1 is an HTTP/1.1 server for connections with a completed TLS handshake. It behaves like net/http's server.
//
// One goroutine serves a connection: it reads the header of a request, runs the handler, writes the response and reads the
// next header. Further goroutines and deadlines are used only if needed: for a header or a body that does not arrive at
// once, or for a handler that runs so long that it should be notified when its client disconnects (exchange.go).
//
// # Strict parsing
//
// Ambiguous requests are refused (400, and the connection ends), because a front proxy or a backend may interpret them
// differently (CVE-2025-22871 and similar): lines must end with CRLF, lines must not be folded, and a body has one length
// or one transfer coding. Otherwise a handler receives the same request as from net/http.
package http1

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/httpengine/httpmsg"
)

// Config configures a Server.
type Config struct {
	// Handler serves the requests.
	Handler http.Handler
	// Context returns the context of a request (engine.ServerConfig). If nil, requests have the server's own.
	Context func(parent context.Context, client string) context.Context
	// BaseServer is the value of http.ServerContextKey. May be nil.
	BaseServer *http.Server
	// MaxHeaderBytes limits a request's header with its request line. A larger one is answered 431. Default 64 KiB.
	MaxHeaderBytes int
	// LargeHeaders grants memory for larger headers. If nil, larger headers are refused.
	LargeHeaders httpmsg.LargeHeaders
	// HeaderTimeout limits the time for a header once it has begun, and for the first one from the start of the connection.
	// It also limits the time for the rest of a body that the handler did not read. Default 10 s.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a connection is kept between requests, or up to an eighth less. Default 90 s.
	IdleTimeout time.Duration
	// DisconnectCheckDelay is the time, or up to twice the time, after which the server begins to watch for a disconnect of
	// a running handler's client. Default 50 ms.
	DisconnectCheckDelay time.Duration
	// Refuse reports whether to refuse requests before any work is done for them, because memory is short. It is not called
	// for connections with a privileged last user. If nil, requests are not refused.
	Refuse func() bool
	// Logf logs panics. If nil, they are not logged.
	Logf func(format string, args ...any)
}

func (c Config) withDefaults() Config {
	orTime := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	if c.MaxHeaderBytes <= 0 {
		c.MaxHeaderBytes = 64 << 10
	}
	orTime(&c.HeaderTimeout, 10*time.Second)
	orTime(&c.IdleTimeout, 90*time.Second)
	orTime(&c.DisconnectCheckDelay, 50*time.Millisecond)
	return c
}

// Server serves connections. It is safe for concurrent use.
type Server struct {
	c            Config
	clock        httpmsg.Clock
	disconnects  disconnectWatcher
	shuttingDown atomic.Bool // set with mu held

	mu    sync.Mutex // guards the fields below
	conns map[*conn]struct{}
	idle  chan struct{} // closed when shutting down and no connection is left
}

// New allocates a Server.
func New(c Config) *Server {
	c = c.withDefaults()
	return &Server{c: c, disconnects: disconnectWatcher{delay: c.DisconnectCheckDelay}, conns: map[*conn]struct{}{}, idle: make(chan struct{})}
}

// Begin registers a connection with a completed TLS handshake. A later Shutdown waits for its first request. The caller
// must call serve, which returns when the connection and its handler have ended. If a handler hijacks the connection,
// hijacked is called before Hijack returns, serve returns when the handler does, and the handler must close the connection.
func (s *Server) Begin(c *tls.Conn, hijacked func()) (serve func()) {
	state := c.ConnectionState()
	return s.begin(c, c.NetConn(), &state, hijacked)
}

// begin is Begin for any connection. raw is the connection below TLS.
func (s *Server) begin(nc, raw net.Conn, state *tls.ConnectionState, hijacked func()) (serve func()) {
	c := newConn(s, nc, raw, state, hijacked)
	if !s.add(c) {
		return func() { _ = nc.Close() }
	}
	return c.serve
}

func (c *conn) serve() {
	defer c.close() // deferred: a handler may end this goroutine
	defer func() {
		if p := recover(); p != nil { // a bug in the server, not in a handler: one request must not end the process
			c.logPanic(p)
			c.closeNow()
		}
	}()
	c.run()
}

func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shuttingDown.Load() {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

// remove removes a connection.
func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.conns[c]; !ok {
		return
	}
	delete(s.conns, c)
	if s.shuttingDown.Load() && len(s.conns) == 0 {
		close(s.idle)
	}
}

// beginShutdown refuses new connections, and returns the current ones.
func (s *Server) beginShutdown() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shuttingDown.Swap(true) && len(s.conns) == 0 {
		close(s.idle)
	}
	all := slices.Collect(maps.Keys(s.conns))
	return all
}

// Shutdown closes idle connections. A second later it closes connections with an incomplete header, and connections whose
// first request has not arrived, because their clients expect this server to answer. Other connections are closed after
// their current response, for which it waits. Connections that begin later are closed. It does not wait for hijacked
// connections.
func (s *Server) Shutdown(ctx context.Context) error {
	for _, c := range s.beginShutdown() {
		c.closeIdle()
	}
	select {
	case <-s.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close closes all connections. It does not wait; Shutdown does.
func (s *Server) Close() {
	for _, c := range s.beginShutdown() {
		c.closeNow()
	}
}

func (s *Server) logf(format string, args ...any) {
	if s.c.Logf != nil {
		s.c.Logf(format, args...)
	}
}
