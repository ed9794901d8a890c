// Package engine is the boundary between HTTP engines and the rest of the program: what an engine does for servers and for clients, and
// what its writers, bodies and errors have besides those of net/http. Package httpengine selects an engine.
package engine

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"

	"portico.dev/internal/httpengine/httpmsg"
)

// Engine is an implementation of HTTP. It has no state.
type Engine interface {
	// NewServer returns a server of HTTP/1.1 and HTTP/2.
	NewServer(ServerConfig) Server
	// NewClientConn starts HTTP/2 on a TLS connection to a verified server, and returns when the server's SETTINGS have
	// arrived. It closes the connection if it fails, or if ctx ends before. Errors are *Error.
	NewClientConn(ctx context.Context, c *tls.Conn, config ClientConfig) (ClientConn, error)
}

// ResponseWriter is the http.ResponseWriter of handlers. Those of HTTP/1.1 are also http.Hijackers. http.ResponseController works
// with all of them. Methods that an engine or a version of HTTP does not support have no effect.
type ResponseWriter interface {
	http.ResponseWriter
	http.Flusher
	//lint:ignore SA1019 k8s.io/apiserver/pkg/endpoints/responsewriter requires it
	http.CloseNotifier
	// Authenticated sets the class of the connection: that of the user of its last request (httpmsg.ClientClass).
	Authenticated(privileged bool)
	// ChargeMemory counts n bytes that the handler holds for the request as memory of the connection. n is negative when they
	// are released.
	ChargeMemory(n int64)
	// LargeHeader returns the grant of the request's header, and the memory that the header uses. The grant is nil if the
	// header is not large.
	LargeHeader() (grant *httpmsg.HeaderGrant, bytes int64)
	// LongRunning exempts the response, for example a watch, from the stall timeout.
	LongRunning()
	// BytesWritten returns the number of bytes that the client has taken, as far as the engine can determine it.
	BytesWritten() int64
	// Continue lets the response continue after the handler has returned: rest is then called on a goroutine with a small
	// stack, and the response ends when rest returns. Continue returns false if this is not supported; rest is then not called.
	// It may be called by the goroutine of the handler, and of rest. A panic revokes it.
	Continue(rest func()) bool
}

// RequestBody is the body of requests that a server passes to handlers.
type RequestBody interface {
	io.ReadCloser
	// Buffered returns the number of bytes that Read returns without waiting, and whether the body ends after them. 0 and false
	// are always correct.
	Buffered() (n int, ended bool)
}

// ResponseBody is the body of responses of a ClientConn.
type ResponseBody interface {
	io.ReadCloser
	// Ready reports whether Read would return immediately. False is always correct.
	Ready() bool
}
