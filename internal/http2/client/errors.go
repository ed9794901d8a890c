package client

import (
	"context"
	"errors"
	"io"

	"portico.dev/internal/http2/frame"
)

// ErrorKind says how far a request got that has no complete response.
type ErrorKind int

const (
	// Lost: the connection ended. The server may have processed the request.
	Lost ErrorKind = iota
	// PingTimeout: the connection was closed because pings were not answered.
	PingTimeout
	// Reset: the server reset the stream.
	Reset
	// ProtocolViolation: the server violated the protocol.
	ProtocolViolation
	// HeaderTimeout: the header of the response did not arrive in time.
	HeaderTimeout
	// Unsent: nothing was sent, because the connection accepts no more requests.
	Unsent
	// Unprocessed: the server's GOAWAY says that it did not process the request.
	Unprocessed
	// Refused: the server reset the stream with REFUSED_STREAM. It did not process the request.
	Refused
	// Canceled: the request's context ended, or the caller closed the response's body.
	Canceled
	// BodyError: reading the request's body failed.
	BodyError
	// InvalidRequest: HTTP/2 cannot carry the request. Nothing was sent.
	InvalidRequest
	// Rejected: the server reset the stream with PROTOCOL_ERROR. The request is malformed to it, and will be again.
	Rejected
	// Abandoned: Conn.AbandonWaiting ended the request. The server may have processed it.
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

// classify is the error of all requests on a connection that ended with err.
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
