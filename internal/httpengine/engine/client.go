package engine

import (
	"context"
	"crypto/tls"
	"net/http"

	"portico.dev/internal/httpengine/http2/client"
)

// ClientConn is an HTTP/2 connection to a backend. It is safe for concurrent use. Only RoundTrip waits.
type ClientConn interface {
	// RoundTrip sends a request and waits for the header of the response. Errors are *ClientError, including errors from
	// reading the response's body, except io.EOF. Only the kinds Unsent, Unprocessed, Refused and InvalidRequest prove that
	// the backend did not process the request. An engine that cannot determine this returns a different kind.
	RoundTrip(*http.Request) (*http.Response, error)
	// MaxStreams returns the number of concurrent requests that the server allows.
	MaxStreams() int
	// Available reports whether the connection accepts further requests, within MaxStreams.
	Available() bool
	// Closed reports whether the connection has ended.
	Closed() bool
	// PingTimedOut reports whether the connection ended because pings were not answered.
	PingTimedOut() bool
	// ProtocolError returns the server's protocol violation, if that ended the connection.
	ProtocolError() error
	// Window returns the connection's current send window and the largest one so far, if the engine can determine them.
	Window() (now, most int64)
	// Check detects timeouts. One goroutine must call it every ClientConfig.CheckInterval: timeouts are counted in checks.
	// If idle is set, it also pings connections without requests.
	Check(idle bool)
	// AbandonWaiting fails requests with method GET or HEAD that have no response header yet, with an error of kind
	// Abandoned. Other requests and the connection are not affected.
	AbandonWaiting(why error)
	// Close ends the connection and all its requests.
	Close()
}

// ClientConfig configures a ClientConn of any engine.
type ClientConfig = client.Config

// ClientError is why a request has no complete response. It is the type of package client, so that its errors need no
// translation.
type ClientError = client.Error

// ErrorKind describes how far a request without a complete response got.
type ErrorKind = client.ErrorKind

// Kinds of errors.
const (
	Lost              = client.Lost              // the connection ended; the server may have processed the request
	PingTimeout       = client.PingTimeout       // the connection was closed because pings were not answered
	Reset             = client.Reset             // the server reset the stream
	Rejected          = client.Rejected          // the server reset the stream with PROTOCOL_ERROR: it considers the request malformed
	ProtocolViolation = client.ProtocolViolation // the server violated the protocol
	HeaderTimeout     = client.HeaderTimeout     // the header of the response did not arrive in time
	Unsent            = client.Unsent            // nothing was sent: the connection accepts no more requests
	Unprocessed       = client.Unprocessed       // according to the server's GOAWAY, it did not process the request
	Refused           = client.Refused           // REFUSED_STREAM: the server did not process the request
	Canceled          = client.Canceled          // the request's context ended, or the caller closed the response's body
	BodyError         = client.BodyError         // reading the request's body failed
	Abandoned         = client.Abandoned         // AbandonWaiting ended the request; the server may have processed it
	InvalidRequest    = client.InvalidRequest    // HTTP/2 cannot carry the request; nothing was sent
)

// NewClientConn starts HTTP/2 on a TLS connection to a verified server, and returns when the server's SETTINGS have
// arrived. It closes the connection if it fails, or if ctx ends before. Errors are *ClientError.
func NewClientConn(ctx context.Context, n Name, tc *tls.Conn, config ClientConfig) (ClientConn, error) {
	if n == Library {
		return newLibraryConn(ctx, tc, config)
	}
	c, err := client.New(ctx, tc, config)
	if err != nil {
		return nil, err // c is nil; returning it would make the interface non-nil
	}
	return c, nil
}

// ScansHTTP1 reports whether Portico's parser checks HTTP/1.1 responses before net/http reads them. Both engines use
// net/http's HTTP/1.1 client.
func (n Name) ScansHTTP1() bool { return n != Library }
