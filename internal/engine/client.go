package engine

import (
	"context"
	"crypto/tls"
	"net/http"

	"portico.dev/internal/http2/client"
)

// ClientConn is an HTTP/2 connection to a backend. It is safe for concurrent use. Only RoundTrip waits.
type ClientConn interface {
	// RoundTrip sends a request and waits for the header of the response. Errors are *ClientError, and so are those of
	// reading the response's body, except io.EOF. Only the kinds Unsent, Unprocessed, Refused and InvalidRequest prove that
	// the backend did not process the request; an engine that does not know returns another one.
	RoundTrip(*http.Request) (*http.Response, error)
	// MaxStreams is how many concurrent requests the server allows.
	MaxStreams() int
	// Available reports whether the connection accepts further requests, within MaxStreams.
	Available() bool
	// Closed reports whether the connection has ended.
	Closed() bool
	// PingTimedOut reports whether the connection ended because pings were not answered.
	PingTimedOut() bool
	// ProtocolError is how the server violated the protocol, if that ended the connection.
	ProtocolError() error
	// Window is the connection's send window now, and the largest that it was, as far as the engine knows.
	Window() (now, most int64)
	// Check finds timeouts. One goroutine calls it every ClientConfig.CheckInterval: timeouts are counted in checks. With
	// idle, connections without requests are pinged too.
	Check(idle bool)
	// AbandonWaiting fails requests with method GET or HEAD that have no response header yet, with an error of kind
	// Abandoned. Other requests and the connection are left alone.
	AbandonWaiting(why error)
	// Close ends the connection and all its requests.
	Close()
}

// ClientConfig configures a ClientConn of any engine.
type ClientConfig = client.Config

// ClientError is why a request has no complete response. It is the type of package client, so that its errors need no
// translation.
type ClientError = client.Error

// ErrorKind says how far a request got that has no complete response.
type ErrorKind = client.ErrorKind

// The kinds of errors.
const (
	Lost              = client.Lost              // the connection ended; the server may have worked on the request
	PingTimeout       = client.PingTimeout       // the connection was closed because pings were not answered
	Reset             = client.Reset             // the server reset the stream
	Rejected          = client.Rejected          // the server reset the stream with PROTOCOL_ERROR: the request is malformed to it
	ProtocolViolation = client.ProtocolViolation // the server violated the protocol
	HeaderTimeout     = client.HeaderTimeout     // the header of the response did not arrive in time
	Unsent            = client.Unsent            // nothing was sent: the connection accepts no more requests
	Unprocessed       = client.Unprocessed       // the server's GOAWAY says that it did not process the request
	Refused           = client.Refused           // REFUSED_STREAM: the server did not process the request
	Canceled          = client.Canceled          // the request's context ended, or the caller closed the response's body
	BodyError         = client.BodyError         // reading the request's body failed
	Abandoned         = client.Abandoned         // AbandonWaiting ended the request; the server may have processed it
	InvalidRequest    = client.InvalidRequest    // HTTP/2 cannot carry the request; nothing was sent
)

// NewClientConn starts HTTP/2 on a TLS connection whose server is verified, and returns when the server's SETTINGS arrived.
// It closes the connection if it fails, or if ctx ends before. Errors are *ClientError.
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

// ScansHTTP1 reports whether our own parser checks HTTP/1.1 responses before the library reads them. With either engine the
// HTTP/1.1 client is the library's.
func (n Name) ScansHTTP1() bool { return n != Library }
