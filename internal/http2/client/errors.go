package client

import (
	"context"
	"errors"
	"io"

	"portico.dev/internal/http2/frame"
)

// ErrorKind is how far a request got that has no answer, or none that is whole.
type ErrorKind int

const (
	// Lost is a connection that ended. The server may have worked on the request.
	Lost ErrorKind = iota
	// PingTimeout is a connection that was given up because pings were not answered.
	PingTimeout
	// Reset is a stream that the server gave up.
	Reset
	// ProtocolViolation is a server that broke the protocol.
	ProtocolViolation
	// HeaderTimeout is a response whose headers did not come in time.
	HeaderTimeout
	// Unsent is a request of which nothing was sent: the connection takes no more.
	Unsent
	// Unprocessed is a request that the server did not look at, as its GOAWAY said.
	Unprocessed
	// Refused is a request that the server did not look at and asks to be sent again: REFUSED_STREAM.
	Refused
	// Canceled is a request whose context ended, or whose body was closed by its reader.
	Canceled
	// BodyError is a request whose own body failed.
	BodyError
	// InvalidRequest is a request that HTTP/2 cannot carry. Nothing of it was sent.
	InvalidRequest
	// Rejected is a stream that the server reset with PROTOCOL_ERROR: to it the request is malformed, and so it will be the next time.
	Rejected
)

// Error is why a request has no answer, or none that is whole.
type Error struct {
	Kind ErrorKind
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

var (
	errClosed         = errors.New("the connection is closed")
	errServerClosed   = errors.New("the server closed the connection")
	errDraining       = errors.New("the server takes no more requests on this connection")
	errTooManyStreams = errors.New("the server allows no more requests at a time on this connection")
	errGoAway         = errors.New("the server went away before it looked at the request")
	errPingTimeout    = errors.New("the connection fell silent: pings are not answered")
	errHeaderTimeout  = errors.New("timeout awaiting response headers")
	errClosedBody     = errors.New("the response body was closed")
	errBodyNotWanted  = errors.New("the server answered without the rest of the body")
	errBodyTooShort   = errors.New("the body is shorter than its length")
)

// closedBody is what reading a response meets that was closed.
var closedBody = &Error{Canceled, errClosedBody}

// canceledError is the error of a request whose context ended.
func canceledError(ctx context.Context) *Error {
	err := ctx.Err()
	if err == nil {
		err = context.Canceled
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, err) {
		err = errors.Join(err, cause)
	}
	return &Error{Canceled, err}
}

// classify is what an error of the connection means for those on it.
func classify(err error) *Error {
	var known *Error
	var broken frame.ConnError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &broken):
		return &Error{ProtocolViolation, err}
	case err == io.EOF:
		err = errServerClosed
	}
	return &Error{Lost, err}
}

func violation(code frame.Code, why string) *Error {
	return &Error{ProtocolViolation, frame.StreamError{Code: code, Reason: why}}
}
