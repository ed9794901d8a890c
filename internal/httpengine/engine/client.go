package engine

import (
	"io"
	"net/http"
	"time"
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

// ClientConfig configures a ClientConn. All fields except OnClose must be set.
type ClientConfig struct {
	// MaxHeaderBytes limits the header of a response, counted as in RFC 9113.
	MaxHeaderBytes int
	// CheckInterval is the time between two calls of Check. It is used to convert the timeouts below to numbers of checks.
	CheckInterval time.Duration
	// PingAfter is how long the server may be silent before it is pinged, and PingTimeout limits the wait for the answer.
	PingAfter, PingTimeout time.Duration
	// HeaderTimeout limits the time from a request to the header of its response. It may be exceeded by a quarter.
	HeaderTimeout time.Duration
	// ProtocolTimeout limits the time for the server to acknowledge the client's SETTINGS, and to complete a header block,
	// during which other frames cannot arrive.
	ProtocolTimeout time.Duration
	// OnClose, if set, is called once, in a new goroutine, when the connection is closed. It must not wait.
	OnClose func()
}

// ErrorKind describes how far a request without a complete response got.
type ErrorKind int

const (
	// Lost means that the connection ended. The server may have processed the request.
	Lost ErrorKind = iota
	// PingTimeout means that the connection was closed because pings were not answered.
	PingTimeout
	// Reset means that the server reset the stream.
	Reset
	// ProtocolViolation means that the server violated the protocol.
	ProtocolViolation
	// HeaderTimeout means that the header of the response did not arrive in time.
	HeaderTimeout
	// Unsent means that nothing was sent, because the connection accepts no more requests.
	Unsent
	// Unprocessed means that the server did not process the request, according to its GOAWAY.
	Unprocessed
	// Refused means that the server reset the stream with REFUSED_STREAM. It did not process the request.
	Refused
	// Canceled means that the request's context ended, or the caller closed the response's body.
	Canceled
	// BodyError means that reading the request's body failed.
	BodyError
	// InvalidRequest means that HTTP/2 cannot carry the request. Nothing was sent.
	InvalidRequest
	// Rejected means that the server reset the stream with PROTOCOL_ERROR. It considers the request malformed, and will
	// reject it again.
	Rejected
	// Abandoned means that ClientConn.AbandonWaiting ended the request. The server may have processed it.
	Abandoned
)

// Error is why a request has no complete response.
type Error struct {
	Kind ErrorKind
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// BytesBody is a request body in memory. It can be sent any number of times. Engines may send it together with the header.
type BytesBody struct {
	data   []byte
	offset int
}

// NewBytesBody returns a body with these bytes, which must not change.
func NewBytesBody(data []byte) *BytesBody { return &BytesBody{data: data} }

// Bytes returns all bytes of the body, which must not be changed.
func (b *BytesBody) Bytes() []byte { return b.data }

// Clone returns an unread copy of the body.
func (b *BytesBody) Clone() *BytesBody { return &BytesBody{data: b.data} }

// Read implements io.Reader, for engines that do not support BytesBody.
func (b *BytesBody) Read(p []byte) (int, error) {
	if b.offset == len(b.data) {
		return 0, io.EOF
	}
	n := copy(p, b.data[b.offset:])
	b.offset += n
	return n, nil
}

// Close does nothing.
func (b *BytesBody) Close() error { return nil }

// EndNotifier is implemented by contexts of requests that call a function at their end at a lower cost than context.AfterFunc.
type EndNotifier interface {
	// OnEnd calls f when the context ends, or soon after. It stores one f at a time.
	OnEnd(f func())
	// OffEnd removes f, and reports whether it was not called.
	OffEnd() bool
}
