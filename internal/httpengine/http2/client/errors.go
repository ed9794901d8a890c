package client

import (
	"context"
	"errors"
	"io"

	"portico.dev/internal/httpengine/http2/frame"
)

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
	// Abandoned means that Conn.AbandonWaiting ended the request. The server may have processed it.
	Abandoned
)

// Error is why a request has no complete response.
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

// closedBody is the error of reads after Close.
var closedBody = &Error{Canceled, errClosedBody}

// canceledError returns the error of a request with an ended context.
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

// classify returns the error of all requests on a connection that ended with err.
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
