// Package http1 is an HTTP/1.1 server for connections whose TLS handshake is done, as net/http's is.
//
// One goroutine serves a connection: it reads the header of a request, runs the handler, writes the response and reads the
// next header. Nothing else runs for it, and no deadline is set, without a reason: a header or a body that does not arrive
// at once, or a handler that runs so long that it should learn when its client disconnects (exchange.go).
//
// # Strict parsing
//
// What could be read in two ways is refused (400, and the connection ends), because a proxy before us or a backend behind
// us may read it the other way (CVE-2025-22871 and similar): lines end with CRLF and nothing else, no line is folded, and a
// body has one length or one transfer coding. Otherwise a handler sees what net/http would show it.
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

	"portico.dev/internal/httpmsg"
)

// Config configures a Server.
type Config struct {
	// Handler serves the requests.
	Handler http.Handler
	// BaseServer is the value of http.ServerContextKey. Default nil: none.
	BaseServer *http.Server
	// MaxHeaderBytes bounds a request's header with its request line. A larger one is answered 431. Default 64 KiB.
	MaxHeaderBytes int
	// LargeHeaders grants memory for larger headers. Nil: there are none.
	LargeHeaders httpmsg.LargeHeaders
	// HeaderTimeout is how long a header may take once it has begun, the first one from the start of the connection; and
	// how long the rest of a body may take that no handler read. Default 10 s.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a connection is kept between requests, or up to an eighth less. Default 90 s.
	IdleTimeout time.Duration
	// DisconnectCheckDelay is after how long, or twice as long, a running handler learns that its client has disconnected.
	// Default 50 ms.
	DisconnectCheckDelay time.Duration
	// Refuse reports whether requests are refused before any work is done for them, because memory is short. It is not
	// called for connections whose last user is privileged. Nil: none is refused.
	Refuse func() bool
	// Logf logs panics. Nil: they are not logged.
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

	mu    sync.Mutex // guards what follows
	conns map[*conn]struct{}
	idle  chan struct{} // closed when shutting down and no connection is left
}

// New allocates a Server.
func New(c Config) *Server {
	c = c.withDefaults()
	return &Server{c: c, disconnects: disconnectWatcher{delay: c.DisconnectCheckDelay}, conns: map[*conn]struct{}{}, idle: make(chan struct{})}
}

// Begin takes over a connection whose TLS handshake is done: a Shutdown that comes later waits for its first request. serve is to be
// called, and returns when the connection and its handler have ended. If a handler hijacks the connection, hijacked is called before
// Hijack returns, serve returns when the handler does, and the handler's side closes the connection.
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
		if p := recover(); p != nil { // a bug of ours, not of a handler: one request must not end the process
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

// beginShutdown refuses new connections, and returns the present ones.
func (s *Server) beginShutdown() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shuttingDown.Swap(true) && len(s.conns) == 0 {
		close(s.idle)
	}
	all := slices.Collect(maps.Keys(s.conns))
	return all
}

// Shutdown closes idle connections, and a second later those with an incomplete header and those whose first request has not come: its
// client counts on this server. Others are closed after their present response, which it waits for. Connections that begin later are
// closed. Hijacked connections are not waited for.
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
