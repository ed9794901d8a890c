package engine

import (
	"context"
	"crypto/tls"
	"net/http"

	"portico.dev/internal/http2/client"
)

// ClientConn is one HTTP/2 connection to a backend. Its methods may be called at any time, by anybody, and none but RoundTrip
// waits for anything.
type ClientConn interface {
	// RoundTrip sends a request and waits for the head of the response. Errors are *ClientError, as are those of reading the
	// response's body but io.EOF. Only the kinds Unsent, Unprocessed, Refused and Unsendable are proofs that nobody worked on the
	// request; an engine that does not know returns another one.
	RoundTrip(*http.Request) (*http.Response, error)
	// MaxStreams is how many requests the server allows at a time.
	MaxStreams() int
	// Available reports whether the connection takes further requests, if it has streams left.
	Available() bool
	// Closed reports whether the connection ended.
	Closed() bool
	// PingTimedOut reports whether the connection ended because pings were not answered.
	PingTimedOut() bool
	// ProtocolError is how the server broke the protocol, if that is why the connection ended.
	ProtocolError() error
	// Window is how much may be sent of request bodies on this connection at the moment, and how much that was at the most, as far
	// as the engine knows.
	Window() (now, most int64)
	// Check looks for what did not come in time. It is to be called every ClientConfig.Every, by one goroutine at a time. Looks are
	// counted, not time. idle has a connection without requests pinged too.
	Check(idle bool)
	// Close ends the connection, and all requests on it.
	Close()
}

// ClientConfig is what every ClientConn is held to.
type ClientConfig = client.Config

// ClientError is why a request has no response, or none that is whole. It is Portico's own type, so that what its connections
// return needs no translation.
type ClientError = client.Error

// ErrorKind is how far the request of a ClientError got.
type ErrorKind = client.ErrorKind

// The kinds of errors.
const (
	Lost              = client.Lost              // the connection ended; the server may have worked on the request
	PingTimeout       = client.PingTimeout       // the connection was given up because pings were not answered
	Reset             = client.Reset             // the server gave the stream up
	Rejected          = client.Rejected          // the server reset the stream with PROTOCOL_ERROR: to it the request is malformed
	ProtocolViolation = client.ProtocolViolation // the server broke the protocol
	HeaderTimeout     = client.HeaderTimeout     // no response headers in time
	Unsent            = client.Unsent            // nothing was sent: the connection takes no more requests
	Unprocessed       = client.Unprocessed       // the server's GOAWAY says that it did not look at the request
	Refused           = client.Refused           // REFUSED_STREAM: the server did not look at the request
	Canceled          = client.Canceled          // the request's context ended, or the response's body was closed by its reader
	BodyError         = client.BodyError         // the request's own body failed
	InvalidRequest    = client.InvalidRequest    // HTTP/2 cannot carry the request; nothing was sent
)

// NewClientConn begins to speak HTTP/2 on a TLS connection whose server is verified, and returns when the server's SETTINGS
// arrived. It closes the connection when it fails, which is also when ctx ends. Errors are *ClientError. It is the one place
// where the choice between the engines is made.
func NewClientConn(ctx context.Context, n Name, tc *tls.Conn, config ClientConfig) (ClientConn, error) {
	if n == Library {
		return newLibraryConn(ctx, tc, config)
	}
	c, err := client.New(ctx, tc, config)
	if err != nil {
		return nil, err // and not a nil pointer in an interface
	}
	return c, nil
}

// ScansHTTP1 reports whether responses over HTTP/1.1 are to be looked at by Portico's own parser before the library reads them.
// The library's client reads HTTP/1.1 with either engine.
func (n Name) ScansHTTP1() bool { return n != Library }
