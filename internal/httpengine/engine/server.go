package engine

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"slices"
	"time"

	"portico.dev/internal/httpengine/http1"
	"portico.dev/internal/httpengine/http2/server"
	"portico.dev/internal/httpengine/httpmsg"
)

// Server serves connections with a completed TLS handshake. It is safe for concurrent use.
type Server interface {
	// Begin registers a connection. A later Shutdown waits for its first request, or makes its client send that to another
	// server. The caller must call serve, which serves the connection with the negotiated protocol, and returns when the
	// connection and its handlers have ended. If a handler hijacks the connection, hijacked is called before Hijack
	// returns, and the handler must close the connection.
	Begin(c *tls.Conn, hijacked func()) (serve func())
	// GoAway sends GOAWAY on HTTP/2 connections, and returns when clients have had the time to receive it.
	GoAway(ctx context.Context) error
	// Shutdown closes idle connections, connections on which no request has begun after a second, and the remaining ones
	// after their current requests. It waits for them until ctx ends, and does not wait for hijacked connections.
	Shutdown(ctx context.Context) error
	// CloseIdle closes up to n connections without requests, in descending order of memory if they differ, and returns
	// their number. Over HTTP/2 it sends GOAWAY. It does not close connections with a privileged last user
	// (httpmsg.ClientClass). It does not wait.
	CloseIdle(n int) int
	// CutLargest ends the requests of users who are not privileged on the connections with the most memory, until these
	// held the given number of bytes, and returns the number of connections. It does not wait. A server that does not
	// measure the memory of connections may do nothing.
	CutLargest(bytes int64) int
	// Close closes all connections. It does not wait.
	Close()
}

// ServerConfig configures a Server of any engine.
type ServerConfig struct {
	// Handler serves the requests.
	Handler http.Handler
	// MaxConcurrentStreams is the maximum number of concurrent requests of an HTTP/2 connection.
	MaxConcurrentStreams int
	// MaxHeaderBytes limits the header of a request. A larger one is answered 431.
	MaxHeaderBytes int
	// LargeHeaders grants memory for larger headers. If nil, larger headers are refused.
	LargeHeaders httpmsg.LargeHeaders
	// HeaderTimeout limits the time for a header, and for the preface of HTTP/2.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a connection without a request is kept.
	IdleTimeout time.Duration
	// PingAfter is how long an HTTP/2 connection may be silent before it is pinged, and PingTimeout limits the wait for the
	// answer.
	PingAfter, PingTimeout time.Duration
	// StallTimeout is how long an HTTP/2 client may leave a response unread by not opening its windows.
	StallTimeout time.Duration
	// Refuse reports whether to refuse requests before any work is done for them, because memory is short. It is not called
	// for connections with a privileged last user (httpmsg.ClientClass). If nil, requests are not refused.
	Refuse func() bool
	// Logf logs panics and clients that violate the protocol.
	Logf func(format string, args ...any)
}

// NewServer makes a Server of an engine.
func NewServer(n Name, c ServerConfig) Server {
	if n == Library {
		return newLibrary(c)
	}
	return newPortico(c)
}

// porticoServer is Portico's HTTP/1.1 and HTTP/2 server.
type porticoServer struct {
	http1 *http1.Server
	http2 *server.Server
}

func newPortico(c ServerConfig) *porticoServer {
	return &porticoServer{
		http1: http1.New(http1.Config{
			Handler: c.Handler, MaxHeaderBytes: c.MaxHeaderBytes, LargeHeaders: c.LargeHeaders, HeaderTimeout: c.HeaderTimeout, IdleTimeout: c.IdleTimeout,
			Refuse: c.Refuse, Logf: c.Logf,
		}),
		http2: server.New(server.Config{
			Handler: c.Handler, MaxConcurrentStreams: c.MaxConcurrentStreams, MaxHeaderBytes: c.MaxHeaderBytes, LargeHeaders: c.LargeHeaders,
			PrefaceTimeout: c.HeaderTimeout, HeaderTimeout: c.HeaderTimeout, IdleTimeout: c.IdleTimeout,
			PingAfter: c.PingAfter, PingTimeout: c.PingTimeout, StallTimeout: c.StallTimeout, Refuse: c.Refuse, Logf: c.Logf,
		}),
	}
}

func (s *porticoServer) Begin(c *tls.Conn, hijacked func()) (serve func()) {
	if c.ConnectionState().NegotiatedProtocol == "h2" {
		return s.http2.Begin(c)
	}
	return s.http1.Begin(c, hijacked)
}

func (s *porticoServer) GoAway(ctx context.Context) error { return s.http2.GoAway(ctx) }

func (s *porticoServer) Shutdown(ctx context.Context) error {
	first := make(chan error, 1)
	go func() { first <- s.http1.Shutdown(ctx) }()
	err := s.http2.Shutdown(ctx)
	return errors.Join(<-first, err)
}

// CloseIdle begins with HTTP/2, because idle HTTP/2 connections hold more memory: header tables, and buffers for frames.
func (s *porticoServer) CloseIdle(n int) int {
	closed := s.http2.CloseIdle(n)
	return closed + s.http1.CloseIdle(n-closed)
}

func (s *porticoServer) CutLargest(bytes int64) (cut int) {
	all := append(s.http1.LargeConns(), s.http2.LargeConns()...)
	slices.SortFunc(all, func(a, b httpmsg.ConnMemory) int { return cmp.Compare(b.Bytes, a.Bytes) })
	for _, h := range all {
		if bytes <= 0 {
			break
		}
		h.Conn.Cut()
		bytes -= h.Bytes
		cut++
	}
	return cut
}

func (s *porticoServer) Close() {
	s.http1.Close()
	s.http2.Close()
}
