package transport

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"portico.dev/internal/engine"
	"portico.dev/internal/httpmsg"
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

// ErrUnresponsive means that the request was given up while it waited, because the backend, or each endpoint that could
// serve it, was found to answer nobody (Backend.Block).
var ErrUnresponsive = errors.New("it does not respond")

// ErrRequestBody means that the request's own body failed: its sender left, or sent what is no body.
var ErrRequestBody = errors.New("the request's body")

// errSlow means that a connection to the endpoint was not there soon enough while there are others to try.
var errSlow = errors.New("no connection yet, trying another endpoint")

// ErrClosed means that the backend is no longer registered with this identity.
var ErrClosed = errors.New("backend is closed")

// Class is whose failure an error is.
type Class int

const (
	// ClassBackend is a failure of the backend, or of the way to it. Nothing else counts against an endpoint: not for its
	// ejection, not in metrics of failures, not for the verdict.
	ClassBackend Class = iota
	// ClassRequest is a mistake of the client: the backend's protocol cannot carry the request, or its body
	// broke off, did not come, or was not as long as it said.
	ClassRequest
	// ClassCanceled is a request that its caller ended, by leaving or by a deadline.
	ClassCanceled
)

func (c Class) String() string {
	return [...]string{"backend", "request", "canceled"}[c]
}

// Error is why a request got no response. Its text names endpoints and is for logs only.
type Error struct {
	// Class is whose failure it is.
	Class Class
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

// LimitError means that the backend already holds as many requests as it may, of everybody or of one user.
type LimitError struct {
	Backend string
	Limit   int
	// Share is whether slots are free, and this user has a fair share of them already.
	Share bool
}

func (e *LimitError) Error() string {
	if e.Share {
		return fmt.Sprintf("backend %s already holds this user's share of %d requests", e.Backend, e.Limit)
	}
	return fmt.Sprintf("backend %s already holds %d requests", e.Backend, e.Limit)
}

// ForbiddenAddressError means that an endpoint resolved to an address that must not be dialled. It is the reason
// ForbiddenAddress of an APIService's condition.
type ForbiddenAddressError struct {
	Address netip.AddrPort
	Name    string // of the host, if it was not resolved
	Why     string
}

func (e *ForbiddenAddressError) Error() string {
	if e.Name != "" {
		return fmt.Sprintf("host %q is forbidden: %s", e.Name, e.Why)
	}
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

// failure is what a failed attempt says about the request and about the endpoint.
type failure struct {
	op            string
	unprocessed   bool // provably nothing of the request was acted upon
	lost          bool // the connection broke, or the stream was reset, before response headers
	protocol      bool // the backend broke the protocol
	headerTimeout bool // no response headers in time
	connection    bool // the endpoint's connection failed, which counts against its health
	refused       bool // the backend itself asked to try again: budgeted
	abandoned     bool // this side gave up waiting: the endpoint was found to be sick before, by other signs
	class         Class
}

// Texts of errors of HTTP/1.1 that net/http does not export. TestHeaderTimeout, TestA28Lies and TestWhatTheLibraryMakesOfLies
// fail when a new version changes them.
const (
	textHeadersLarge  = "server response headers exceeded"
	textMalformed     = "malformed"
	textHeaderTimeout = "timeout awaiting response headers"
	textTrailerKey    = "bad trailer key"
	textTrailersLong  = "suspiciously long trailer"
	textTrailersEnd   = "unexpected EOF reading trailer" // also of an malformedError within trailers, which it hides
)

// Texts of what http1Conn would have refused before the library read it.
const (
	textBadLength     = "Content-Length \""
	textTwoLengths    = "multiple Content-Length headers"
	textBadCoding     = "transfer encoding"
	textChunkLength   = "chunk length"
	textChunkLine     = "in chunked line"
	textChunkBareLF   = "chunked line ends"
	textChunkNonData  = "too much non-data"
	textLineTooLong   = "line too long"
	textHeadTooLarge  = "message too large"
	textInterimsLarge = "too many 1xx informational responses"
)

// malformedResponse reports the texts of net/http's errors for malformed responses.
func malformedResponse(text string) bool {
	return slices.ContainsFunc([]string{
		textHeadersLarge, textMalformed, textTrailerKey, textTrailersLong, textTrailersEnd,
		textBadLength, textTwoLengths, textBadCoding, textChunkLength, textChunkLine, textChunkBareLF, textChunkNonData, textLineTooLong, textHeadTooLarge,
		textInterimsLarge,
	}, func(t string) bool { return strings.Contains(text, t) })
}

// classify reads an attempt's error. When ctx, which is the request's, has ended, no side is to blame.
func classify(ctx context.Context, err error) failure {
	var connect *connectError
	if errors.As(err, &connect) {
		return failure{op: connect.op, unprocessed: true, class: classOf(ctx)} // the dial itself updated the endpoint's health
	}
	if errors.Is(err, ErrSaturated) {
		return failure{op: OpPick, unprocessed: true, class: classOf(ctx)}
	}
	f := failure{op: OpRoundTrip}
	if ctx.Err() != nil {
		f.class = ClassCanceled
		return f
	}
	var unfit *httpmsg.RequestError
	if errors.As(err, &unfit) {
		f.class, f.unprocessed = ClassRequest, true
		return f
	}
	var known *engine.ClientError
	if errors.As(err, &known) {
		return f.withKind(known.Kind)
	}
	var wrong malformedError
	text := err.Error()
	switch {
	case errors.Is(err, errBodyGone), errors.Is(err, errProtocolChanged):
		f.unprocessed = true
	case errors.Is(err, ErrUnresponsive): // over HTTP/1.1
		f.lost, f.abandoned = true, true
	case errors.As(err, &wrong), malformedResponse(text):
		f.protocol = true
	case strings.Contains(text, textHeaderTimeout):
		f.headerTimeout = true
	default:
		f.lost, f.connection = true, true
	}
	return f
}

// classOf is the class of a failure that may be nothing but the end of ctx.
func classOf(ctx context.Context) Class {
	if ctx.Err() != nil {
		return ClassCanceled
	}
	return ClassBackend
}

// withKind is f with what an error of HTTP/2 says.
func (f failure) withKind(known engine.ErrorKind) failure {
	switch known {
	case engine.Lost, engine.PingTimeout:
		f.lost, f.connection = true, true
	case engine.Reset:
		f.lost = true
	case engine.Abandoned:
		f.lost, f.abandoned = true, true
	case engine.Rejected: // any endpoint would say so, and each would have a failure counted against it
	case engine.ProtocolViolation:
		f.protocol = true
	case engine.HeaderTimeout:
		f.headerTimeout = true
	case engine.Unsent, engine.Unprocessed:
		f.unprocessed = true
	case engine.Refused:
		f.unprocessed, f.refused = true, true
	case engine.InvalidRequest:
		f.unprocessed, f.class = true, ClassRequest
	case engine.BodyError:
		f.class = ClassRequest
	case engine.Canceled:
		f.class = ClassCanceled
	}
	return f
}
