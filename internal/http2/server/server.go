// Package serve is the HTTP/2 side that clients meet: what net/http's server is, for connections that are through TLS.
//
// One goroutine reads each connection and never waits for anything else: not for a handler, and not for the other side to
// take what is written. Handlers run on workers, goroutines that are used again, so that a request costs neither a start
// nor the growth of a stack. A handler writes its own frames (wire.Out).
//
// What a handler sees is what net/http shows it. Where this server differs, it refuses more: a body that is not as long as
// its Content-Length says is a broken stream, and so is a second, different length.
//
// # What a client can make us keep
//
// Streams count until their handlers have ended, reset or not (CVE-2023-44487), and resets that a client provokes count as
// its own (CVE-2025-8671). Header blocks are bounded compressed and unpacked, and in time. What asks for an answer, or
// means nothing, may come so often and no more (bounds.go); a header block that is too large counts as a thousand of these.
// Windows bound bodies. An answer that the client does not take ends (watch.go), unless its handler says that it is long-running.
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

	"portico.dev/internal/httpmsg"
)

// Config is a server.
type Config struct {
	// Handler serves the requests.
	Handler http.Handler
	// BaseServer is what requests find under http.ServerContextKey. Default nil: nothing.
	BaseServer *http.Server
	// MaxConcurrentStreams bounds the streams of a connection, and the handlers that run for it. Default 100.
	MaxConcurrentStreams int
	// MaxHeaderBytes bounds the names and values of a request's header. A larger one is answered 431. Default 64 KiB.
	MaxHeaderBytes int
	// StreamWindow and ConnWindow are how many bytes of bodies a client may send before handlers read them. Bodies that nobody reads
	// stop the others of their connection when they fill the latter. Default 256 KiB and 1 MiB: three of them do not.
	StreamWindow, ConnWindow int
	// PrefaceTimeout is how long a client may take to say what it must say first. Default 10 s.
	PrefaceTimeout time.Duration
	// HeaderTimeout is how long a header may take to come once it has begun. Default 10 s.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a connection without streams is kept, or a little longer. Default 90 s.
	IdleTimeout time.Duration
	// PingAfter is how long nothing may be heard from a client, or half as long again, before it is asked whether it is
	// there; it then has PingTimeout to answer. Default 30 s and 15 s.
	PingAfter, PingTimeout time.Duration
	// StallTimeout is how long a client may leave an answer untaken, or up to half as long again: within it, it must let at
	// least 4 KiB be sent, or all that is left. Otherwise the stream is reset, and the connection goes on. What a handler says
	// is long-running (LongRunning) is let be. Default 30 s.
	StallTimeout time.Duration
	// GoAwayGrace is how long a client that is told to go elsewhere may begin streams, unless it confirms sooner that it
	// has heard; and how long it may take to close the connection after its last stream. Default 1 s.
	GoAwayGrace time.Duration
	// MaxIdleWorkers bounds the workers that wait for a request. Each keeps a stack of some 32 KiB. Default 256.
	MaxIdleWorkers int
	// Refuse reports whether requests are refused before anything is done for them, as memory is short. It is not asked of connections
	// whose last user is privileged. Nil: none is.
	Refuse func() bool
	// Logf hears of panics and of clients that break the protocol. Nil: nobody does.
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

// Server serves connections.
type Server struct {
	c     Config
	pool  workerPool
	clock httpmsg.Clock

	mu           sync.Mutex // guards what follows
	conns        map[*conn]struct{}
	shuttingDown bool
	idle         chan struct{} // closed when leaving and no connection is left
}

// New allocates a server.
func New(c Config) *Server {
	c = c.withDefaults()
	return &Server{c: c, pool: workerPool{maxIdle: c.MaxIdleWorkers}, conns: map[*conn]struct{}{}, idle: make(chan struct{})}
}

// Serve serves a connection whose handshake is done and chose "h2". It returns when the connection and all its handlers
// have ended.
func (s *Server) Serve(c *tls.Conn) {
	state := c.ConnectionState()
	s.serve(c, c.NetConn(), &state)
}

// serve is Serve for any connection. raw is what lies below it.
func (s *Server) serve(nc, raw net.Conn, state *tls.ConnectionState) {
	c := newConn(s, nc, raw, state)
	s.mu.Lock()
	if s.shuttingDown {
		s.mu.Unlock()
		c.rejectConn()
		return
	}
	s.conns[c] = struct{}{}
	s.mu.Unlock()

	c.run()

	s.mu.Lock()
	delete(s.conns, c)
	if s.shuttingDown && len(s.conns) == 0 {
		close(s.idle)
	}
	s.mu.Unlock()
}

// GoAway tells all clients to go elsewhere, and returns when they have had the time to hear of it: what they send from then
// on, they know is not served here. No connection is served any more that was not before: it is told so.
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

// Shutdown tells all clients to go elsewhere, and waits for their streams and connections to end.
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

// goAwayAll has every connection say GOAWAY.
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

// Close cuts all connections off. It does not wait: Shutdown does.
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
