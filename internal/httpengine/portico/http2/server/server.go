// Package server is an HTTP/2 server for connections with a completed TLS handshake. It behaves like net/http's server.
//
// One goroutine reads each connection, and waits for nothing else: neither for a handler, nor for the client to read
// written data. Handlers run on workers, which are reused goroutines, so that a request requires neither the start of a
// goroutine nor the growth of its stack. A handler writes its frames itself (frame.Writer). A response may continue after
// its handler has returned (Continue), on a goroutine with a small stack.
//
// A handler receives the same request as from net/http. Where this server differs, it is stricter: a body that is not as
// long as its Content-Length is a stream error, and so is a second Content-Length.
//
// # Limits for clients
//
// A stream counts until its handler, and the function that the handler passed to Continue, have returned, even if it was
// reset (CVE-2023-44487). Resets that a client provokes count as its resets (CVE-2025-8671). Header blocks are limited in
// compressed size, decoded size, and time. Frames that require a reply, or are empty, are rate-limited (ratelimit.go); an
// oversized header block counts as a thousand of them. Flow control limits bodies. A response that the client does not read
// is reset (timeouts.go), unless its handler has marked it as long-running.
package server

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
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
	// MaxConcurrentStreams limits the streams of a connection, and its running handlers. Default 100.
	MaxConcurrentStreams int
	// MaxHeaderBytes limits the header fields of a request. A larger header is answered 431. Default 64 KiB.
	MaxHeaderBytes int
	// LargeHeaders grants memory for larger headers. If nil, larger headers are refused.
	LargeHeaders httpmsg.LargeHeaders
	// StreamWindow and ConnWindow are the number of bytes of bodies that a client may send before handlers read them.
	// Unread bodies that fill ConnWindow block all other bodies of their connection. Default 256 KiB and 1 MiB, so that
	// three unread bodies do not block.
	StreamWindow, ConnWindow int
	// PrefaceTimeout limits the time for the client's preface and first SETTINGS. Default 10 s.
	PrefaceTimeout time.Duration
	// HeaderTimeout limits the time for a header once it has begun. Default 10 s.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a connection without streams is kept, or slightly longer. Default 90 s.
	IdleTimeout time.Duration
	// PingAfter is how long, or up to half as long again, a connection may be silent before it is pinged. The client then
	// has PingTimeout to answer. Default 30 s and 15 s.
	PingAfter, PingTimeout time.Duration
	// StallTimeout is how long, or up to half as long again, a client may leave a response unread. Within it, its windows
	// must allow at least 4 KiB to be sent, or all remaining data. Otherwise the stream is reset. Long-running responses
	// (LongRunning) are exempt. Default 30 s.
	StallTimeout time.Duration
	// GoAwayGrace is how long a client may open streams after the first GOAWAY, unless it confirms the GOAWAY earlier, and
	// how long it may take to close the connection after its last stream. Default 1 s.
	GoAwayGrace time.Duration
	// MaxIdleWorkers is the maximum number of idle workers. Each retains a stack of about 32 KiB. Default 256.
	MaxIdleWorkers int
	// Refuse reports whether to refuse requests before any work is done for them, because memory is short. It is not called
	// for connections with a privileged last user. If nil, requests are not refused.
	Refuse func() bool
	// Logf logs panics and clients that violate the protocol. If nil, they are not logged.
	Logf func(format string, args ...any)
}

func (c Config) withDefaults() Config {
	or := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	orTime := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	or(&c.MaxConcurrentStreams, 100)
	or(&c.MaxHeaderBytes, 64<<10)
	or(&c.StreamWindow, 256<<10)
	or(&c.ConnWindow, 1<<20)
	or(&c.MaxIdleWorkers, 256)
	orTime(&c.PrefaceTimeout, 10*time.Second)
	orTime(&c.HeaderTimeout, 10*time.Second)
	orTime(&c.IdleTimeout, 90*time.Second)
	orTime(&c.PingAfter, 30*time.Second)
	orTime(&c.PingTimeout, 15*time.Second)
	orTime(&c.StallTimeout, 30*time.Second)
	orTime(&c.GoAwayGrace, time.Second)
	return c
}

// Server serves connections. It is safe for concurrent use.
type Server struct {
	c     Config
	pool  workerPool
	clock httpmsg.Clock

	mu           sync.Mutex // guards the fields below
	conns        map[*conn]struct{}
	shuttingDown bool
	idle         chan struct{} // closed when shutting down and no connection is left
}

// New allocates a Server.
func New(c Config) *Server {
	c = c.withDefaults()
	return &Server{c: c, pool: workerPool{maxIdle: c.MaxIdleWorkers}, conns: map[*conn]struct{}{}, idle: make(chan struct{})}
}

// Begin registers a connection with a completed TLS handshake that negotiated "h2". A later Shutdown waits for it. The
// caller must call serve, which returns when the connection and all its handlers have ended.
func (s *Server) Begin(c *tls.Conn) (serve func()) {
	state := c.ConnectionState()
	return s.begin(c, c.NetConn(), &state)
}

// begin is Begin for any connection. raw is the connection below TLS.
func (s *Server) begin(nc, raw net.Conn, state *tls.ConnectionState) (serve func()) {
	c := newConn(s, nc, raw, state)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shuttingDown {
		return c.rejectConn
	}
	s.conns[c] = struct{}{}
	return c.serve
}

func (c *conn) serve() {
	c.run()

	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.shuttingDown && len(s.conns) == 0 {
		close(s.idle)
	}
}

// GoAway sends GOAWAY to all clients, and returns when they have had the time to receive it, so that they know that later
// requests are not processed. New connections are rejected with GOAWAY.
func (s *Server) GoAway(ctx context.Context) error {
	for _, c := range s.goAwayAll() {
		select {
		case <-c.lastStreamSent:
		case <-c.closed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Shutdown sends GOAWAY to all clients, and waits for their streams and connections to end.
func (s *Server) Shutdown(ctx context.Context) error {
	s.goAwayAll()
	select {
	case <-s.idle:
		s.pool.close()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// goAwayAll sends GOAWAY on every connection.
func (s *Server) goAwayAll() []*conn {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.conns))
	if !s.shuttingDown {
		s.shuttingDown = true
		if len(all) == 0 {
			close(s.idle)
		}
	}
	s.mu.Unlock()
	for _, c := range all {
		c.goAway()
	}
	return all
}

// Close closes all connections. It does not wait; Shutdown does.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.shuttingDown {
		s.shuttingDown = true
		if len(s.conns) == 0 {
			close(s.idle)
		}
	}
	for c := range s.conns {
		c.closeNow()
	}
	s.mu.Unlock()
	s.pool.close()
}

func (s *Server) logf(format string, args ...any) {
	if s.c.Logf != nil {
		s.c.Logf(format, args...)
	}
}
