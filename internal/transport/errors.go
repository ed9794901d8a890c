package transport

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// The steps at which a request can fail.
const (
	OpPick      = "pick"      // no endpoint to try
	OpDial      = "dial"      // no TCP connection
	OpTLS       = "tls"       // no TLS session, or not with whom we wanted
	OpRoundTrip = "roundtrip" // a connection was there
)

// ErrNoEndpoints means that the backend has no endpoint at all.
var ErrNoEndpoints = errors.New("no endpoints")

// ErrSaturated means that every connection to the endpoint is full and no more may be opened.
var ErrSaturated = errors.New("every connection is at the limit of concurrent streams")

// ErrHeaderTimeout means that the backend took the request and sent no response headers in Options.HeaderTimeout.
var ErrHeaderTimeout = errors.New("no response headers in time")

// errSlow means that a connection to the endpoint was not there soon enough while there are others to try.
var errSlow = errors.New("no connection yet, trying another endpoint")

// ErrClosed means that the backend is no longer registered with this identity.
var ErrClosed = errors.New("backend is closed")

// Error is why a request got no response. Its text names endpoints and is for logs only.
type Error struct {
	// Op is the step that failed: OpPick, OpDial, OpTLS or OpRoundTrip.
	Op string
	// Endpoint is the address tried last, empty for OpPick.
	Endpoint string
	// Sent is whether the backend may have acted on the request. False is a promise that it did not.
	Sent bool
	// Protocol is whether the backend answered with something that is not HTTP as we speak it.
	Protocol bool
	// Attempts counts the connections tried.
	Attempts int
	// Err is the cause.
	Err error
}

func (e *Error) Error() string {
	if e.Endpoint == "" {
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s %s: %v", e.Op, e.Endpoint, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// LimitError means that the backend already holds as many requests as it may.
type LimitError struct {
	Backend string
	Limit   int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("backend %s already holds %d requests", e.Backend, e.Limit)
}

// ForbiddenAddressError means that an endpoint resolved to an address that must not be dialled. It is the reason
// ForbiddenAddress of an APIService's condition.
type ForbiddenAddressError struct {
	Address netip.AddrPort
	Why     string
}

func (e *ForbiddenAddressError) Error() string {
	return fmt.Sprintf("address %s is forbidden: %s", e.Address, e.Why)
}

// connectError is a connection that was never made.
type connectError struct {
	op  string // OpDial or OpTLS
	err error
}

func (e *connectError) Error() string { return e.op + ": " + e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }

// errBodyGone means that a request could have been repeated but its body could not.
var errBodyGone = errors.New("the request body is too large to be sent again")

// fate is what a failed attempt says about the request and about the endpoint.
type fate struct {
	op         string
	unconsumed bool // provably nothing of the request was acted upon
	lost       bool // the connection broke, or the stream was reset, before response headers
	protocol   bool // the backend broke the protocol
	late       bool // no response headers in time
	connection bool // the endpoint's connection failed, which counts against its health
	refused    bool // the backend itself asked to try again: budgeted
}

// streamError is how net/http lets a stream's error be read: it fills any struct of this shape (errors.As).
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e streamError) Error() string { return fmt.Sprintf("stream error: code %d: %v", e.Code, e.Cause) }

// codeRefusedStream is REFUSED_STREAM of RFC 9113.
const codeRefusedStream = 7

// Texts of errors that net/http does not export. TestGoAwayStormLosesNoWrite, TestHeaderTimeout and TestA28Lies fail when a
// new version changes them.
const (
	textGoAway        = "http2: Transport received Server's graceful shutdown GOAWAY"
	textGoAwayCode    = "http2: Transport received GOAWAY from server ErrCode:"
	textUnusable      = "http2: client conn not usable"
	textNotEstablish  = "http2: client conn could not be established"
	textHeadersLarge  = "response header list larger than advertised limit"
	textHeadersLarge1 = "server response headers exceeded"
	textMalformed     = "malformed"
	textFromPeer      = "received from peer"
	textHeaderTimeout = "timeout awaiting response headers"
	textConnection    = "connection error: "
)

// judge reads an attempt's error. ctx is the request's: its end is nobody's fault.
func judge(ctx context.Context, err error) fate {
	var connect *connectError
	if errors.As(err, &connect) {
		return fate{op: connect.op, unconsumed: true} // the dial itself told the endpoint's health
	}
	if errors.Is(err, ErrSaturated) {
		return fate{op: OpPick, unconsumed: true}
	}
	f := fate{op: OpRoundTrip}
	if ctx.Err() != nil {
		return f
	}
	if f.unconsumed = unconsumed(err); f.unconsumed {
		var stream streamError
		f.refused = errors.As(err, &stream)
		return f
	}
	if f.protocol = brokeProtocol(err); f.protocol {
		return f
	}
	if f.late = strings.Contains(err.Error(), textHeaderTimeout); f.late {
		return f
	}
	f.lost = true
	var stream streamError
	f.connection = !errors.As(err, &stream)
	return f
}

// unconsumed reports the errors by which HTTP/2 proves that a request was not processed (RFC 9113, 8.7), and those of
// connections that took nothing.
func unconsumed(err error) bool {
	if errors.Is(err, errBodyGone) || errors.Is(err, errProtocolChanged) {
		return true
	}
	var stream streamError
	if errors.As(err, &stream) {
		return stream.Code == codeRefusedStream
	}
	switch text := err.Error(); text {
	case textGoAway, textUnusable, textNotEstablish:
		return true
	default:
		return strings.HasPrefix(text, textGoAwayCode)
	}
}

func brokeProtocol(err error) bool {
	var stream streamError
	if errors.As(err, &stream) {
		// A reset that came from the peer is a lost stream; one of our own making is a verdict on what it sent.
		return stream.Cause == nil || !strings.Contains(stream.Cause.Error(), textFromPeer)
	}
	text := err.Error()
	return strings.HasPrefix(text, textConnection) || strings.Contains(text, textHeadersLarge) || strings.Contains(text, textHeadersLarge1) ||
		strings.Contains(text, textMalformed)
}
