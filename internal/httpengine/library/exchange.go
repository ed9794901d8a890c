package library

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"portico.dev/internal/httpengine/engine"
)

// Texts of errors of golang.org/x/net/http2 that have no type. TestErrorTextsMatchXNetHTTP2 fails when a new version changes them.
// An error that is not recognized counts as Lost, after which only idempotent requests are repeated.
const (
	textUnusable       = "http2: client conn not usable"
	textNotEstablished = "http2: client conn could not be established"
	textGoAway         = "http2: Transport received Server's graceful shutdown GOAWAY"
	textGoAwayCode     = "http2: Transport received GOAWAY from server" // if it does not name one of our streams
	textHeaderTimeout  = "http2: timeout awaiting response headers"
	textInvalid        = "http2: invalid " // detected before anything is sent
	textHeaderList     = "request header list larger than peer's advertised limit"
	textFromPeer       = "received from peer"
	textTooLong        = "net/http: server replied with more than declared Content-Length"
	textClosing        = "http2: closing connection with "
	textClosedBody     = "http2: response body closed"
)

const (
	// maxInterim is the maximum number of 1xx responses to a request.
	maxInterim = 10
	// maxHeld is the maximum size of a response with a header that is held until the rest has arrived. Until then the
	// request can be repeated.
	maxHeld = 16 << 10
)

var (
	errInterim      = errors.New("too many interim responses")
	errSwitched     = errors.New("it switched protocols, which HTTP/2 does not know")
	errStatus       = errors.New("a status that is none")
	errLength       = errors.New("a response that is not as long as its Content-Length")
	errNoContent    = errors.New("a response with a status that has no content, and content")
	errBodyTooShort = errors.New("the body is shorter than its length")
	errClosedBody   = errors.New("the response body was closed")
	errUploadOver   = errors.New("the rest of the request body is not wanted")
)

// canceledError returns the error of a request with an ended context.
func canceledError(ctx context.Context) *engine.Error {
	err := ctx.Err()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, err) {
		err = errors.Join(err, cause)
	}
	return &engine.Error{Kind: engine.Canceled, Err: err}
}

// exchange is a request on a clientConn, and its response.
type exchange struct {
	conn            *clientConn
	request         *http.Request
	upload          *requestBody // nil without a body
	informational   int
	headersReceived bool // of the final response
	over            sync.Once
	ctx             context.Context         // of net/http's request; nil for requests that AbandonWaiting does not affect
	cancel          context.CancelCauseFunc // cancels ctx
}

// transportRequest returns the request for golang.org/x/net/http2.
func (e *exchange) transportRequest() *http.Request {
	trace := &httptrace.ClientTrace{Got1xxResponse: e.informationalHeaders}
	given := e.request
	if given.Body != nil && given.Body != http.NoBody {
		e.upload = newRequestBody(e.conn, given)
		trace.WroteRequest = func(httptrace.WroteRequestInfo) { e.upload.wasSent() }
	}
	r := given.WithContext(httptrace.WithClientTrace(given.Context(), trace))
	r.Close, r.Body, r.GetBody = false, nil, nil
	if e.upload != nil {
		r.Body = e.upload
	} else if given.Body != nil {
		_ = given.Body.Close() // it is empty
	}
	if values := r.Header["Connection"]; len(values) == 1 && strings.EqualFold(values[0], "close") {
		r.Header = r.Header.Clone() // it is not sent, and golang.org/x/net/http2 would close a connection with other requests
		delete(r.Header, "Connection")
	}
	return r
}

// informationalHeaders is called for a 1xx response.
func (e *exchange) informationalHeaders(code int, _ textproto.MIMEHeader) error {
	e.informational++
	switch {
	case code == http.StatusSwitchingProtocols:
		return errSwitched
	case e.informational > maxInterim:
		return errInterim
	}
	return nil
}

// finish is called, at least once, when nothing more arrives.
func (e *exchange) finish() {
	e.over.Do(func() {
		e.conn.active.Add(-1)
		if e.cancel != nil {
			e.cancel(nil)
		}
	})
}

// response converts the response of golang.org/x/net/http2 to the caller's.
func (e *exchange) response(resp *http.Response) (*http.Response, error) {
	e.headersReceived = true
	resp.Request = e.request
	if code := resp.StatusCode; code < 200 || code > 999 || len(resp.Status) < 4 || resp.Status[3] != ' ' {
		_ = resp.Body.Close() // the response is invalid
		e.finish()
		return nil, &engine.Error{Kind: engine.ProtocolViolation, Err: errStatus}
	}
	if e.request.Method == http.MethodHead {
		_ = resp.Body.Close() // there is no body
		resp.Body = http.NoBody
		e.finish()
		return resp, nil
	}
	body := &responseBody{
		exchange: e, source: resp.Body,
		bodiless: resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified,
	}
	if n := resp.ContentLength; n < 0 || n > maxHeld {
		resp.Body = body
		return resp, nil
	}
	return hold(resp, body)
}

// failure translates an error of golang.org/x/net/http2.
func (e *exchange) failure(err error) *engine.Error {
	if why := e.upload.sourceError(); why != nil {
		return &engine.Error{Kind: engine.BodyError, Err: why}
	}
	if ctx := e.request.Context(); ctx.Err() != nil {
		return canceledError(ctx)
	}
	if e.ctx != nil {
		var abandoned *engine.Error
		if errors.As(context.Cause(e.ctx), &abandoned) {
			return abandoned
		}
	}
	kind, known := e.kindOf(err)
	if !known {
		if why := e.conn.closeError(); why != nil {
			return why
		}
		kind = engine.Lost
	}
	return &engine.Error{Kind: kind, Err: err}
}

// kindOf returns the kind of an error, if it can be determined from the error alone.
func (e *exchange) kindOf(err error) (kind engine.ErrorKind, known bool) {
	var ours *engine.Error
	var stream http2.StreamError
	var conn http2.ConnectionError
	switch {
	case errors.As(err, &ours):
		return ours.Kind, true
	case errors.As(err, &stream):
		return e.kindOfStream(stream), true
	case errors.As(err, &conn), errors.Is(err, http2.ErrFrameTooLarge):
		e.conn.recordViolation(err)
		return engine.ProtocolViolation, true
	case errors.Is(err, io.ErrUnexpectedEOF) && e.headersReceived && !e.conn.Closed():
		return engine.ProtocolViolation, true // the stream ended before the response's length
	}
	switch text := err.Error(); {
	case text == textUnusable, text == textNotEstablished:
		return engine.Unsent, true
	case text == textGoAway, strings.HasPrefix(text, textGoAwayCode):
		return engine.Unprocessed, true
	case text == textHeaderTimeout:
		return engine.HeaderTimeout, true
	case strings.HasPrefix(text, textInvalid), text == "http2: "+textHeaderList:
		return engine.InvalidRequest, true
	case text == textHeaderList: // the request's trailers are too large
		return engine.BodyError, true
	case strings.HasPrefix(text, textTooLong), strings.HasPrefix(text, textClosing):
		return engine.ProtocolViolation, true
	case text == textClosedBody:
		return engine.Canceled, true
	}
	return engine.Lost, false
}

func (e *exchange) kindOfStream(err http2.StreamError) engine.ErrorKind {
	switch {
	case err.Cause == nil || err.Cause.Error() != textFromPeer:
		return engine.ProtocolViolation // golang.org/x/net/http2 reset the stream
	case err.Code == http2.ErrCodeRefusedStream && !e.headersReceived:
		return engine.Refused
	case err.Code == http2.ErrCodeProtocol:
		return engine.Rejected
	}
	return engine.Reset
}

// recordViolation records the server's protocol violation.
func (c *clientConn) recordViolation(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.violation == nil {
		c.violation = fmt.Errorf("the server broke the protocol of HTTP/2: %w", err)
	}
}

// requestBody is a request's body for golang.org/x/net/http2. It is limited to its declared length, and ends when it is no
// longer needed. golang.org/x/net/http2 waits for a pending read even if the stream has ended.
type requestBody struct {
	conn     *clientConn
	source   io.ReadCloser
	rest     int64 // -1 if unknown
	inMemory bool  // reads do not wait
	closed   chan struct{}
	once     sync.Once
	buffer   []byte
	came     chan readResult
	given    atomic.Int64 // when the unsent bytes were returned, in Unix nanoseconds; 0 without unsent bytes
	failed   atomic.Pointer[error]
}

type readResult struct {
	n   int
	err error
}

func newRequestBody(c *clientConn, r *http.Request) *requestBody {
	b := &requestBody{conn: c, source: r.Body, rest: -1, closed: make(chan struct{})}
	_, b.inMemory = r.Body.(*engine.BytesBody)
	if r.ContentLength > 0 {
		b.rest = r.ContentLength
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uploads[b] = struct{}{}
	return b
}

// Read implements io.Reader. A call means that the bytes returned before were sent.
func (b *requestBody) Read(p []byte) (int, error) {
	b.given.Store(0)
	if b.rest == 0 {
		return 0, io.EOF
	}
	if b.rest > 0 {
		p = p[:min(int64(len(p)), b.rest)]
	}
	n, err := b.read(p)
	if b.rest > 0 {
		if b.rest -= int64(n); b.rest == 0 && err == nil {
			err = io.EOF
		}
		if err == io.EOF && b.rest > 0 {
			err = errBodyTooShort
		}
	}
	if err != nil && err != io.EOF && err != errUploadOver {
		b.failed.CompareAndSwap(nil, &err)
	}
	if n > 0 {
		b.given.Store(time.Now().UnixNano())
	}
	return n, err
}

// read reads the source while the body is needed.
func (b *requestBody) read(p []byte) (int, error) {
	if b.inMemory {
		return b.source.Read(p)
	}
	if b.came == nil {
		b.came = make(chan readResult, 1)
	}
	if len(b.buffer) < len(p) {
		b.buffer = make([]byte, len(p))
	}
	room := b.buffer[:len(p)]
	go func() { // until the source is closed at the latest, which Close does
		n, err := b.source.Read(room)
		b.came <- readResult{n, err}
	}()
	select {
	case got := <-b.came:
		select {
		case <-b.closed: // the error may result from closing the source
			return 0, errUploadOver
		default:
			return copy(p, room[:got.n]), got.err
		}
	case <-b.closed:
		return 0, errUploadOver
	}
}

func (b *requestBody) Close() (err error) {
	b.once.Do(func() {
		b.conn.mu.Lock()
		delete(b.conn.uploads, b)
		b.conn.mu.Unlock()
		close(b.closed)
		err = b.source.Close()
	})
	return err
}

func (b *requestBody) wasSent() { b.given.Store(0) }

// stalled reports whether bytes wait to be sent.
func (b *requestBody) stalled() bool {
	given := b.given.Load()
	return given != 0 && time.Since(time.Unix(0, given)) >= stalledAfter
}

// sourceError returns the error of the source, or nil.
func (b *requestBody) sourceError() error {
	if b == nil {
		return nil
	}
	if err := b.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// responseBody is the body of golang.org/x/net/http2 with errors of this package.
type responseBody struct {
	*exchange
	source   io.ReadCloser
	bodiless bool
	closed   atomic.Bool
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.source.Read(p)
	switch {
	case b.bodiless && n > 0:
		b.finish()
		_ = b.source.Close() // the response is invalid
		return 0, &engine.Error{Kind: engine.ProtocolViolation, Err: errNoContent}
	case b.bodiless && err == io.ErrUnexpectedEOF:
		err = io.EOF // Content-Length is the length that the content would have had
	case err == nil:
		return n, nil
	}
	b.finish()
	switch {
	case err == io.EOF:
	case b.closed.Load():
		err = &engine.Error{Kind: engine.Canceled, Err: errClosedBody}
	default:
		why := b.failure(err)
		if why.Kind == engine.ProtocolViolation && err == io.ErrUnexpectedEOF {
			why.Err = errLength
		}
		err = why
	}
	return n, err
}

// Ready implements engine.ResponseBody.
func (b *responseBody) Ready() bool { return false }

// Close discards the unread data. If golang.org/x/net/http2 returns an error, it is the context's.
func (b *responseBody) Close() error {
	b.closed.Store(true)
	_ = b.source.Close() // ignore the context's error
	b.finish()
	return nil
}

// heldBody is a short response that is read before its header is returned.
type heldBody struct {
	body           *responseBody
	response       *http.Response // from golang.org/x/net/http2
	callerResponse *http.Response // returned to the caller
	released       chan struct{}  // closed when the caller gets the data that has arrived
	finished       chan struct{}  // closed when everything has arrived
	arrived        chan struct{}  // capacity 1: data has arrived

	mu   sync.Mutex // guards the fields below
	data []byte
	err  error // returned after data
}

// hold waits for the rest of a short response, at most until the next Check. A failure before that fails the request.
func hold(resp *http.Response, body *responseBody) (*http.Response, error) {
	shown := *resp
	h := &heldBody{
		body: body, response: resp, callerResponse: &shown,
		released: make(chan struct{}), finished: make(chan struct{}), arrived: make(chan struct{}, 1),
		data: make([]byte, 0, resp.ContentLength+1),
	}
	if resp.Trailer != nil { // golang.org/x/net/http2 writes into it
		shown.Trailer = resp.Trailer.Clone()
	}
	shown.Body = h
	body.conn.hold(h)
	go h.fill()
	select {
	case <-h.finished:
		body.conn.unhold(h)
		if h.err != io.EOF {
			_ = body.Close() // the response is invalid
			return nil, h.err
		}
	case <-h.released:
	}
	return &shown, nil
}

// fill reads the response to its end. Close ends it.
func (h *heldBody) fill() {
	defer close(h.finished)
	room := make([]byte, h.response.ContentLength+1) // not cap(h.data), which Read may change already
	for {
		n, err := h.body.Read(room)
		h.mu.Lock()
		h.data = append(h.data, room[:n]...)
		h.err = err
		h.mu.Unlock()
		select {
		case h.arrived <- struct{}{}:
		default: // a signal is already pending
		}
		if err != nil {
			return
		}
	}
}

func (h *heldBody) Read(p []byte) (int, error) {
	for {
		h.mu.Lock()
		n, err := copy(p, h.data), h.err
		h.data = h.data[n:]
		h.mu.Unlock()
		switch {
		case n > 0 || len(p) == 0:
			return n, nil
		case err == io.EOF:
			h.trailers()
			return 0, err
		case err != nil:
			return 0, err
		}
		<-h.arrived
	}
}

// trailers copies the trailers that golang.org/x/net/http2 has read.
func (h *heldBody) trailers() {
	for name, values := range h.response.Trailer {
		if h.callerResponse.Trailer == nil {
			h.callerResponse.Trailer = make(http.Header)
		}
		h.callerResponse.Trailer[name] = values
	}
}

// Ready reports whether Read would return immediately.
func (h *heldBody) Ready() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.data) > 0 || h.err != nil
}

func (h *heldBody) Close() error { return h.body.Close() }
