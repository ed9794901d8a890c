package engine

import (
	"context"
	"crypto/tls"
	"net/http"
	"time"

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
	// Handler serves the requests. Its writers are ResponseWriters, and the bodies are RequestBodies.
	Handler http.Handler
	// Context returns the context of a request of a client with the given address (http.Request.RemoteAddr). It is derived from
	// parent, which ends when the client has disconnected or does not need the response any more, and when the handler has
	// returned. If nil, requests have parent.
	Context func(parent context.Context, client string) context.Context
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
