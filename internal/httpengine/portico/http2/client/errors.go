package client

import (
	"context"
	"errors"
	"io"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/portico/http2/frame"
)

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
var closedBody = &engine.Error{Kind: engine.Canceled, Err: errClosedBody}

// canceledError returns the error of a request with an ended context.
func canceledError(ctx context.Context) *engine.Error {
	err := ctx.Err()
	if err == nil {
		err = context.Canceled
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, err) {
		err = errors.Join(err, cause)
	}
	return &engine.Error{Kind: engine.Canceled, Err: err}
}

// classify returns the error of all requests on a connection that ended with err.
func classify(err error) *engine.Error {
	var known *engine.Error
	var broken frame.ConnError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &broken):
		return &engine.Error{Kind: engine.ProtocolViolation, Err: err}
	case err == io.EOF:
		err = errServerClosed
	}
	return &engine.Error{Kind: engine.Lost, Err: err}
}

func violation(code frame.Code, why string) *engine.Error {
	return &engine.Error{Kind: engine.ProtocolViolation, Err: frame.StreamError{Code: code, Reason: why}}
}
