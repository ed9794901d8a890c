// Package http1 is the HTTP/1.1 side that clients meet: what net/http's server is, for connections that are through TLS.
//
// One goroutine has a connection: it reads the head of a request, runs the handler, writes the answer and reads the next
// head. Nothing else runs for it, and no deadline is set, unless there is a reason: a head or a body that does not come at
// once, or a handler that runs so long that it should hear of its client's end (listen.go).
//
// # One reading
//
// What could be read in two ways is refused (400, and the connection ends), because whoever stands before us, or behind,
// may read it in the other (CVE-2025-22871 and its kin): lines end with CRLF and nothing else, no line is folded, a body
// has one length or one coding. A handler sees of the rest what net/http shows it.
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

// Config is a server.
type Config struct {
	// Handler serves the requests.
	Handler http.Handler
	// BaseServer is what requests find under http.ServerContextKey. Default nil: nothing.
	BaseServer *http.Server
	// MaxHeaderBytes bounds a request's head, the request line included. A larger one is answered 431. Default 64 KiB.
	MaxHeaderBytes int
	// HeaderTimeout is how long a head may take once it has begun, and the first one from the start; and how long the rest
	// of a body may take that no handler wanted. Default 10 s.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a connection is kept between requests, or up to an eighth less. Default 90 s.
	IdleTimeout time.Duration
	// DisconnectCheckDelay is how long a handler runs, or twice as long, before it hears of its client's end. Default 50 ms.
	DisconnectCheckDelay time.Duration
	// Refuse reports whether requests are refused before anything is done for them, as memory is short. It is not asked of connections
	// whose last user is privileged. Nil: none is.
	Refuse func() bool
	// Logf hears of panics. Nil: nobody does.
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

// Server serves connections.
type Server struct {
	c            Config
	clock        httpmsg.Clock
	disconnects  disconnectWatcher
	shuttingDown atomic.Bool // set with mu held

	mu    sync.Mutex // guards what follows
	conns map[*conn]struct{}
	idle  chan struct{} // closed when leaving and no connection is left
}

// New allocates a server.
func New(c Config) *Server {
	c = c.withDefaults()
	return &Server{c: c, disconnects: disconnectWatcher{delay: c.DisconnectCheckDelay}, conns: map[*conn]struct{}{}, idle: make(chan struct{})}
}

// Serve serves a connection whose handshake is done. It returns when the connection and its handler have ended. When a
// handler hijacks the connection, hijacked is called, before Hijack returns, and Serve returns with the handler: whoever
// has the connection ends it.
func (s *Server) Serve(c *tls.Conn, hijacked func()) {
	state := c.ConnectionState()
	s.serve(c, c.NetConn(), &state, hijacked)
}

// serve is Serve for any connection. raw is what lies below it.
func (s *Server) serve(nc, raw net.Conn, state *tls.ConnectionState, hijacked func()) {
	c := newConn(s, nc, raw, state, hijacked)
	if !s.add(c) {
		_ = nc.Close()
		return
	}
	defer c.close() // deferred: a handler may end this goroutine
	defer func() {
		if p := recover(); p != nil { // ours, not a handler's: one request must not be the end of all
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

// remove has the server know a connection no more.
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

// beginShutdown has no connection come in any more, and returns those that are there.
func (s *Server) beginShutdown() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shuttingDown.Swap(true) && len(s.conns) == 0 {
		close(s.idle)
	}
	all := slices.Collect(maps.Keys(s.conns))
	return all
}

// Shutdown closes the connections that wait for a request, and a second later those that wait for the rest of a head, has
// the others close with the answer in hand, and waits for them. New ones are closed. Those that were hijacked are others' business.
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

// Close cuts all connections off. It does not wait: Shutdown does.
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
