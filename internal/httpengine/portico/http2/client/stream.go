package client

import (
	"context"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/httpengine/portico/http2/frame"
)

// stream is a request and its response, in one allocation. It is also the response's body.
type stream struct {
	conn     *Conn
	request  *http.Request
	response http.Response
	send     frame.SendStream
	body     frame.Body     // of the response
	answered sync.WaitGroup // done when there is a response or an error

	// Fields of the request, set before it is sent.
	authority, path string
	trailers        string // names
	length          int64  // of the body; -1 if unknown
	notifier        engine.EndNotifier
	stopAfterFunc   func() bool

	// Used by the goroutine that reads.
	headersReceived bool // of the final response
	informational   int
	remaining       int64 // of the body; -1 if unknown

	// Guarded by conn.mu.
	id          uint32        // 0 if not opened
	returned    bool          // RoundTrip has a response or an error
	held        bool          // the header waits for the rest of the response
	ended       bool          // nothing more arrives
	sent        bool          // the request was sent completely
	err         *engine.Error // why there is no response
	recvWindow  frame.RecvWindow
	headerWaits int         // quarters of HeaderTimeout
	trailer     http.Header // of the response
}

// noReset is for streams that the server has already ended.
const noReset = frame.Code(1 << 31)

// RoundTrip sends r and waits for the header of the response. Errors are *Error. A BytesBody is sent at once, other bodies
// while they are read, both as far as windows allow.
func (c *Conn) RoundTrip(r *http.Request) (*http.Response, error) {
	s := &stream{conn: c, request: r, remaining: -1, recvWindow: frame.NewRecvWindow(streamWindow)}
	if err := s.prepare(); err != nil {
		closeBody(r)
		return nil, &engine.Error{Kind: engine.InvalidRequest, Err: err}
	}
	s.body.Consumer = s
	s.answered.Add(1)
	c.w.AddActive(1)
	s.watchContext(r.Context())
	s.open()
	s.answered.Wait()
	c.w.AddActive(-1)
	if err := s.err; err != nil {
		s.unwatchContext()
		return nil, err
	}
	if s.response.Body == http.NoBody {
		s.unwatchContext()
	}
	return &s.response, nil
}

// open opens the stream. The result is reported through answered.
func (s *stream) open() {
	r, out := s.request, s.conn.w
	if s.length == 0 {
		closeBody(r)
		_, err := out.OpenStream(&s.send, s, nil, true)
		s.openFailed(err)
		return
	}
	whole, _ := r.Body.(*engine.BytesBody)
	if whole == nil {
		_, err := out.OpenStream(&s.send, s, nil, false)
		if s.openFailed(err) {
			closeBody(r)
			return
		}
		go s.upload()
		return
	}
	n, err := out.OpenStream(&s.send, s, whole.Bytes(), true)
	if !s.openFailed(err) && n < len(whole.Bytes()) {
		go func() { _ = out.WriteData(&s.send, whole.Bytes()[n:], true) }() // the end of the stream has recorded the reason
	}
}

// openFailed ends a request if its stream could not be opened.
func (s *stream) openFailed(err error) bool {
	if err == nil {
		return false
	}
	c := s.conn
	c.mu.Lock()
	begun := s.id != 0
	c.mu.Unlock()
	if begun { // then the connection has ended, with all its streams
		return false
	}
	if err == frame.ErrNoMoreStreams {
		c.goAway(frame.MaxStreamID)
	}
	s.fail(&engine.Error{Kind: engine.Unsent, Err: err}, noReset)
	return true
}

// Opened implements frame.NewStream.
func (s *stream) Opened(id uint32) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s.ended:
		return s.err
	case c.err != nil:
		return c.err
	case c.draining.Load():
		return errDraining
	case len(c.streams) >= int(c.maxStreams.Load()): // the limit was lowered after this connection was chosen
		return errTooManyStreams
	}
	s.id, c.newest = id, id
	_, whole := s.request.Body.(*engine.BytesBody)
	s.sent = whole || s.length == 0
	c.streams[id] = s
	return nil
}

// fail ends the stream, unless it has ended.
func (s *stream) fail(why *engine.Error, reset frame.Code) {
	first, ok := s.markEnded(why)
	if !ok {
		return
	}
	// The reset is sent first: the caller may start another request when it receives the error, and the server would count
	// both.
	out := s.conn.w
	out.Abort(&s.send, why)
	if s.id != 0 && reset != noReset {
		s.conn.cancelled.Add(1)
		_ = out.WriteRSTStream(s.id, reset) // if it fails, the connection ends
	}
	if why.Kind == engine.Canceled {
		s.body.Fail(why)
	} else {
		s.body.End(why) // the caller may read the data that arrived before
	}
	if first {
		s.answered.Done()
	}
}

// markEnded marks the stream as ended. ok is false if it was already, and first is set if the caller has no result yet.
func (s *stream) markEnded(why *engine.Error) (first, ok bool) {
	c := s.conn
	c.mu.Lock()
	if s.ended {
		c.mu.Unlock()
		return false, false
	}
	s.ended = true
	delete(c.streams, s.id)
	s.unholdLocked()
	if first = !s.returned; first {
		s.returned, s.err = true, why
	}
	spent := c.drained()
	c.mu.Unlock()
	if spent {
		c.Close()
	}
	return first, true
}

// serverReset is called for RST_STREAM.
func (s *stream) serverReset(code frame.Code) {
	kind := engine.Reset
	switch {
	case code == frame.RefusedStream && !s.headersReceived:
		kind = engine.Refused
	case code == frame.ProtocolError:
		kind = engine.Rejected
	}
	s.fail(&engine.Error{Kind: kind, Err: frame.StreamError{Stream: s.id, Code: code, Reason: "received from the server"}}, noReset)
}

// headers is called for a header block.
func (s *stream) headers(h *headerBlock, end bool) error {
	if s.headersReceived {
		return s.trailersReceived(h, end)
	}
	code := h.statusCode()
	if code < 200 {
		return s.informationalHeaders(h, code, end)
	}
	s.headersReceived = true
	if why := h.fillResponse(s, code, end); why != nil {
		s.fail(why, frame.ProtocolError)
		return nil
	}
	if end {
		s.complete(nil)
		return nil
	}
	useless := s.response.Body == http.NoBody // the rest of a response to HEAD is of no use
	if s.shortResponse() && !useless {
		s.holdHeaders()
		return nil
	}
	s.release()
	if useless {
		s.fail(closedBody, frame.Cancel)
	}
	return nil
}

// maxInterim is the maximum number of 1xx responses to a request.
const maxInterim = 10

func (s *stream) informationalHeaders(h *headerBlock, code int, end bool) error {
	s.informational++
	switch {
	case code == 0:
		return s.protocolError("no status, or one that is none")
	case code == http.StatusSwitchingProtocols:
		return s.protocolError("it switched protocols, which HTTP/2 does not know")
	case end:
		return s.protocolError("it ended with an interim response")
	case s.informational > maxInterim:
		return s.protocolError("too many interim responses")
	}
	for _, f := range h.fields {
		if f.name == "Content-Length" && strings.Trim(f.value, "0") != "" {
			return s.protocolError("a length of an answer that has no body")
		}
	}
	return nil
}

func (s *stream) protocolError(why string) error {
	return frame.StreamError{Stream: s.id, Code: frame.ProtocolError, Reason: why}
}

func (s *stream) trailersReceived(h *headerBlock, end bool) error {
	if !end || h.hasPseudo {
		return s.protocolError("trailers that do not end the stream, or with pseudo fields")
	}
	if s.remaining > 0 {
		return s.protocolError("a response that ends before its length")
	}
	if len(h.fields) > httpmsg.MaxTrailers {
		return s.protocolError("too many trailers")
	}
	s.trailer = h.header()
	maps.DeleteFunc(s.trailer, func(name string, _ []string) bool { return !httpmsg.ValidTrailer(name) })
	s.complete(nil)
	return nil
}

// maxHeld is the maximum size of a response with a header that is held until the rest has arrived. Most of them arrive at
// once, so that the caller is woken only once. If the server dies in between, no response has begun, and the request can be
// repeated.
const maxHeld = 16 << 10

// shortResponse reports, when the header has arrived, whether it must be held.
func (s *stream) shortResponse() bool { return s.remaining >= 0 && s.remaining <= maxHeld }

// holdHeaders holds the header of the response until the rest has arrived, or until the next Check.
func (s *stream) holdHeaders() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.ended {
		s.held = true
		c.heldCount.Add(1)
	}
}

// unholdLocked must be called with conn.mu held.
func (s *stream) unholdLocked() {
	if s.held {
		s.held = false
		s.conn.heldCount.Add(-1)
	}
}

// release returns the response to the caller.
func (s *stream) release() {
	c := s.conn
	c.mu.Lock()
	told := s.returned
	s.returned = true
	s.unholdLocked()
	c.mu.Unlock()
	if !told {
		s.answered.Done()
	}
}

// data is called for DATA. size is the length with padding.
func (s *stream) data(p []byte, size int, end bool) error {
	c := s.conn
	c.mu.Lock()
	within := s.recvWindow.Take(size)
	var increment uint32
	if padding := size - len(p); padding > 0 {
		increment = s.recvWindow.Return(padding)
	}
	c.mu.Unlock()
	switch {
	case !within:
		return frame.StreamError{Stream: s.id, Code: frame.FlowControlError, Reason: "more DATA than the window"}
	case !s.headersReceived:
		return s.protocolError("DATA before HEADERS")
	case s.remaining >= 0:
		if s.remaining -= int64(len(p)); s.remaining < 0 {
			return s.protocolError("a body longer than its length")
		}
		if end && s.remaining > 0 {
			return s.protocolError("a response that ends before its length")
		}
	}
	if end {
		s.complete(p)
		return nil
	}
	if len(p) > 0 {
		s.body.Add(p, nil)
	}
	if increment > 0 {
		return c.w.WriteWindowUpdate(s.id, increment)
	}
	return nil
}

// complete ends the stream with the complete response.
func (s *stream) complete(last []byte) {
	first, ok := s.markEnded(nil)
	if !ok {
		return
	}
	if out := s.conn.w; !out.Abort(&s.send, errBodyNotWanted) { // first, as in fail
		_ = out.WriteRSTStream(s.id, frame.NoError) // the rest of the request is not needed; RFC 9113, section 8.1
	}
	s.body.Add(last, io.EOF)
	if first {
		s.answered.Done()
	}
}

// Consumed implements frame.Consumer.
func (s *stream) Consumed(n int) {
	c := s.conn
	c.mu.Lock()
	var increment uint32
	if !s.ended {
		increment = s.recvWindow.Return(n)
	}
	c.mu.Unlock()
	if increment > 0 {
		_ = c.w.WriteWindowUpdate(s.id, increment) // if it fails, the connection ends
	}
}

// watchContext ends the stream when its context ends.
func (s *stream) watchContext(ctx context.Context) {
	if s.notifier, _ = ctx.(engine.EndNotifier); s.notifier != nil {
		s.notifier.OnEnd(s.canceled)
		return
	}
	s.stopAfterFunc = context.AfterFunc(ctx, s.canceled)
}

// unwatchContext undoes watchContext. The caller's goroutine calls it.
func (s *stream) unwatchContext() {
	if s.notifier != nil {
		s.notifier.OffEnd()
	} else if s.stopAfterFunc != nil {
		s.stopAfterFunc()
	}
	s.notifier, s.stopAfterFunc = nil, nil
}

func (s *stream) canceled() { s.fail(canceledError(s.request.Context()), frame.Cancel) }
