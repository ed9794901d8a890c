package transport

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/httpmsg"
)

// Steps at which a request can fail.
const (
	OpPick      = "pick"      // no endpoint to try
	OpDial      = "dial"      // no TCP connection
	OpTLS       = "tls"       // no TLS session with the expected server
	OpRoundTrip = "roundtrip" // after a connection was established
)

// ErrNoEndpoints means that the backend has no endpoints.
var ErrNoEndpoints = errors.New("no endpoints")

// ErrSaturated means that all connections to the endpoint are full and no more may be opened.
var ErrSaturated = errors.New("every connection is at the limit of concurrent streams")

// ErrHeaderTimeout means that the backend accepted the request and sent no response headers within
// Options.HeaderTimeout.
var ErrHeaderTimeout = errors.New("no response headers in time")

// ErrUnresponsive means that a waiting request was abandoned, because the backend or each suitable endpoint was found
// to be unresponsive (Backend.Block).
var ErrUnresponsive = errors.New("it does not respond")

// ErrRequestBody means that the request's own body failed: the client disconnected or sent an invalid body.
var ErrRequestBody = errors.New("the request's body")

// errSlow means that connecting to the endpoint took too long while other endpoints were available.
var errSlow = errors.New("no connection yet, trying another endpoint")

// ErrClosed means that the backend is no longer registered with this identity.
var ErrClosed = errors.New("backend is closed")

// Class is the party that caused an error.
type Class int

const (
	// ClassBackend is a failure of the backend or of the network path to it. Only this class counts for ejections,
	// failure metrics and availability.
	ClassBackend Class = iota
	// ClassRequest is an error of the client: the request cannot be encoded in the backend's protocol, or its body
	// was aborted, late, or had the wrong length.
	ClassRequest
	// ClassCanceled is a request that its caller ended, by cancellation or a deadline.
	ClassCanceled
)

func (c Class) String() string {
	return [...]string{"backend", "request", "canceled"}[c]
}

// Error describes why a request got no response. Its text contains endpoints and is for logs only.
type Error struct {
	// Class is the party that caused the error.
	Class Class
	// Op is the step that failed: OpPick, OpDial, OpTLS or OpRoundTrip.
	Op string
	// Endpoint is the last address tried, empty for OpPick.
	Endpoint string
	// Sent reports whether the backend may have acted on the request. False guarantees that it did not.
	Sent bool
	// Protocol reports whether the backend's response was not valid HTTP.
	Protocol bool
	// Attempts is the number of attempts.
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

// LimitError means that the backend has reached its limit of requests, either in total or for one user.
type LimitError struct {
	Backend string
	Limit   int
	// Share is set if slots are free but the user has used its share.
	Share bool
}

func (e *LimitError) Error() string {
	if e.Share {
		return fmt.Sprintf("backend %s already holds this user's share of %d requests", e.Backend, e.Limit)
	}
	return fmt.Sprintf("backend %s already holds %d requests", e.Backend, e.Limit)
}

// ForbiddenAddressError means that an endpoint resolved to an address that must not be dialed. It is reported as the
// reason ForbiddenAddress in an APIService's condition.
type ForbiddenAddressError struct {
	Address netip.AddrPort
	Name    string // host name, if it was not resolved
	Why     string
}

func (e *ForbiddenAddressError) Error() string {
	if e.Name != "" {
		return fmt.Sprintf("host %q is forbidden: %s", e.Name, e.Why)
	}
	return fmt.Sprintf("address %s is forbidden: %s", e.Address, e.Why)
}

// connectError is a failure to establish a connection.
type connectError struct {
	op  string // OpDial or OpTLS
	err error
}

func (e *connectError) Error() string { return e.op + ": " + e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }

// errBodyGone means that the request could be repeated but its body is no longer available.
var errBodyGone = errors.New("the request body is too large to be sent again")

// failure is the interpretation of a failed attempt.
type failure struct {
	op            string
	unprocessed   bool // provably not processed
	lost          bool // the connection broke, or the stream was reset, before the response headers
	protocol      bool // the backend violated the protocol
	headerTimeout bool // no response headers in time
	connection    bool // the endpoint's connection failed, which counts against its health
	refused       bool // the backend requested a retry; budgeted
	abandoned     bool // abandoned by this side, because the endpoint had already been found unhealthy
	class         Class
}

// Error texts of net/http's HTTP/1.1 client that are not exported as values. TestMissingResponseHeadersTimeOut, TestA28MalformedResponsesAreNotForwarded and
// TestNetHTTPRejectionIsBackendProtocolError fail if a new Go version changes them.
const (
	textHeadersLarge  = "server response headers exceeded"
	textMalformed     = "malformed"
	textHeaderTimeout = "timeout awaiting response headers"
	textTrailerKey    = "bad trailer key"
	textTrailersLong  = "suspiciously long trailer"
	textTrailersEnd   = "unexpected EOF reading trailer" // also hides a malformedError within trailers
)

// Error texts for responses that http1Conn would refuse before net/http reads them.
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

// malformedResponse reports whether text is a net/http error for a malformed response.
func malformedResponse(text string) bool {
	return slices.ContainsFunc([]string{
		textHeadersLarge, textMalformed, textTrailerKey, textTrailersLong, textTrailersEnd,
		textBadLength, textTwoLengths, textBadCoding, textChunkLength, textChunkLine, textChunkBareLF, textChunkNonData, textLineTooLong, textHeadTooLarge,
		textInterimsLarge,
	}, func(t string) bool { return strings.Contains(text, t) })
}

// classify interprets an attempt's error. If ctx, the request's context, has ended, neither side is at fault.
func classify(ctx context.Context, err error) failure {
	var connect *connectError
	if errors.As(err, &connect) {
		return failure{op: connect.op, unprocessed: true, class: classOf(ctx)} // the dial has updated the endpoint's health
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
	var known *engine.Error
	if errors.As(err, &known) {
		return f.withKind(known.Kind)
	}
	var wrong malformedError
	text := err.Error()
	switch {
	case errors.Is(err, errBodyGone), errors.Is(err, errProtocolChanged):
		f.unprocessed = true
	case errors.Is(err, ErrUnresponsive): // HTTP/1.1 only
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

// classOf returns the class of a failure that may be caused by the end of ctx.
func classOf(ctx context.Context) Class {
	if ctx.Err() != nil {
		return ClassCanceled
	}
	return ClassBackend
}

// withKind returns f with the properties of an HTTP/2 error.
func (f failure) withKind(known engine.ErrorKind) failure {
	switch known {
	case engine.Lost, engine.PingTimeout:
		f.lost, f.connection = true, true
	case engine.Reset:
		f.lost = true
	case engine.Abandoned:
		f.lost, f.abandoned = true, true
	case engine.Rejected: // every endpoint would reject the request, so it must not count against their health
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
