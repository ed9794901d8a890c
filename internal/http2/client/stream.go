package client

import (
	"context"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"

	"portico.dev/internal/http2/frame"
	"portico.dev/internal/httpmsg"
)

// stream is one request and its response: everything of it, in one piece of memory. It is the response's body too.
type stream struct {
	conn     *Conn
	request  *http.Request
	response http.Response
	sender   frame.Sender
	body     frame.Body     // of the response, as it arrived
	answered sync.WaitGroup // until there is a response or an error

	// Of the request, set before it is sent.
	authority, path string
	trailers        string // the names of its trailers
	length          int64  // of its body, -1 when unknown
	ender           Ender
	unwatch         func() bool

	// The reading goroutine's.
	heads   bool // the response has its head
	interim int
	rest    int64 // of the body, what has not come; -1: unknown

	// Guarded by conn.mu.
	id      uint32 // 0: not begun
	told    bool   // there is a response or an error
	held    bool   // there is the head of a response, which waits for the rest
	over    bool   // nothing more comes
	sent    bool   // the request is, to its end
	err     *Error // why there is no response
	inflow  frame.Inflow
	waited  int         // quarters of the header timeout
	trailer http.Header // of the response
}

// noReset is for streams of which the server knows the end.
const noReset = frame.Code(1 << 31)

// RoundTrip sends r and waits for the head of the response. Errors are *Error. A body that is Whole goes along at once, any
// other as it comes and as windows let it.
func (c *Conn) RoundTrip(r *http.Request) (*http.Response, error) {
	s := &stream{conn: c, request: r, rest: -1, inflow: frame.NewInflow(streamWindow)}
	if err := s.prepare(); err != nil {
		closeBody(r)
		return nil, &Error{Unsendable, err}
	}
	s.body.Consumer = s
	s.answered.Add(1)
	c.out.Expect(1)
	s.watch(r.Context())
	s.open()
	s.answered.Wait()
	c.out.Expect(-1)
	if err := s.err; err != nil {
		s.off()
		return nil, err
	}
	if s.response.Body == http.NoBody {
		s.off()
	}
	return &s.response, nil
}

// open begins the stream. What comes of it is told by way of answered.
func (s *stream) open() {
	r, out := s.request, s.conn.out
	if s.length == 0 {
		closeBody(r)
		_, err := out.Begin(&s.sender, s, nil, true)
		s.unsent(err)
		return
	}
	whole, _ := r.Body.(*Whole)
	if whole == nil {
		_, err := out.Begin(&s.sender, s, nil, false)
		if s.unsent(err) {
			closeBody(r)
			return
		}
		go s.upload()
		return
	}
	n, err := out.Begin(&s.sender, s, whole.data, true)
	if !s.unsent(err) && n < len(whole.data) {
		go func() { _ = out.Data(&s.sender, whole.data[n:], true) }() // whoever ended the stream knows why
	}
}

// unsent has a request end that was not begun.
func (s *stream) unsent(err error) bool {
	if err == nil {
		return false
	}
	c := s.conn
	c.mu.Lock()
	begun := s.id != 0
	c.mu.Unlock()
	if begun { // then the connection is lost, and everything on it told
		return false
	}
	if err == frame.ErrNoMoreStreams {
		c.goAway(frame.MaxStreamID)
	}
	s.fail(&Error{Unsent, err}, noReset)
	return true
}

// Opened implements frame.Opening.
func (s *stream) Opened(id uint32) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s.over:
		return s.err
	case c.err != nil:
		return c.err
	case c.full.Load():
		return errDraining
	case len(c.streams) >= int(c.allowed.Load()): // whoever chose this connection did so before the server said so
		return errCrowded
	}
	s.id, c.newest = id, id
	_, whole := s.request.Body.(*Whole)
	s.sent = whole || s.length == 0
	c.streams[id] = s
	return nil
}

// fail ends the stream, unless it is over.
func (s *stream) fail(why *Error, reset frame.Code) {
	first, ok := s.finish(why)
	if !ok {
		return
	}
	// The server is told first: whoever hears of the end may begin another request, and the server would count both.
	out := s.conn.out
	out.Abort(&s.sender, why)
	if s.id != 0 && reset != noReset {
		s.conn.cancelled.Add(1)
		_ = out.Reset(s.id, reset) // the connection's failure is told elsewhere
	}
	if why.Fate == Left {
		s.body.Fail(why)
	} else {
		s.body.End(why) // what arrived before is the caller's
	}
	if first {
		s.answered.Done()
	}
}

// finish makes the stream one that is over. ok is false when it was, and first whether the caller is still to be told.
func (s *stream) finish(why *Error) (first, ok bool) {
	c := s.conn
	c.mu.Lock()
	if s.over {
		c.mu.Unlock()
		return false, false
	}
	s.over = true
	delete(c.streams, s.id)
	s.unhold()
	if first = !s.told; first {
		s.told, s.err = true, why
	}
	spent := c.spent()
	c.mu.Unlock()
	if spent {
		c.Close()
	}
	return first, true
}

// wasReset is told of RST_STREAM.
func (s *stream) wasReset(code frame.Code) {
	fate := Reset
	switch {
	case code == frame.RefusedStream && !s.heads:
		fate = Refused
	case code == frame.ProtocolError:
		fate = Rejected
	}
	s.fail(&Error{fate, frame.StreamError{Stream: s.id, Code: code, Why: "received from the server"}}, noReset)
}

// headers is told of a header block.
func (s *stream) headers(h *head, end bool) error {
	if s.heads {
		return s.trailing(h, end)
	}
	code := h.code()
	if code < 200 {
		return s.provisional(h, code, end)
	}
	s.heads = true
	if why := h.fill(s, code, end); why != nil {
		s.fail(why, frame.ProtocolError)
		return nil
	}
	if end {
		s.complete(nil)
		return nil
	}
	useless := s.response.Body == http.NoBody // an answer to HEAD has nothing else that is of use
	if s.short() && !useless {
		s.hold()
		return nil
	}
	s.tell()
	if useless {
		s.fail(closedBody, frame.Cancel)
	}
	return nil
}

// maxInterim bounds the interim responses before the real one.
const maxInterim = 10

func (s *stream) provisional(h *head, code int, end bool) error {
	s.interim++
	switch {
	case code == 0:
		return s.violates("no status, or one that is none")
	case code == http.StatusSwitchingProtocols:
		return s.violates("it switched protocols, which HTTP/2 does not know")
	case end:
		return s.violates("it ended with an interim response")
	case s.interim > maxInterim:
		return s.violates("too many interim responses")
	}
	for _, f := range h.fields {
		if f.name == "Content-Length" && strings.Trim(f.value, "0") != "" {
			return s.violates("a length of an answer that has no body")
		}
	}
	return nil
}

func (s *stream) violates(why string) error {
	return frame.StreamError{Stream: s.id, Code: frame.ProtocolError, Why: why}
}

func (s *stream) trailing(h *head, end bool) error {
	if !end || h.pseudo {
		return s.violates("trailers that do not end the stream, or with pseudo fields")
	}
	if s.rest > 0 {
		return s.violates("a response that ends before its length")
	}
	if len(h.fields) > httpmsg.MaxTrailers {
		return s.violates("too many trailers")
	}
	s.trailer = h.header()
	maps.DeleteFunc(s.trailer, func(name string, _ []string) bool { return !httpmsg.MayBeTrailer(name) })
	s.complete(nil)
	return nil
}

// maxHeld is the longest response whose head waits for the rest. Most of them come in the same breath: whoever waits is woken
// once, and a server that dies in between has failed to answer, and did not cut an answer short that is on its way already.
const maxHeld = 16 << 10

// short reports, when the head is there, whether the response is short enough to wait for the rest.
func (s *stream) short() bool { return s.rest >= 0 && s.rest <= maxHeld }

// hold has the head of the response wait: until the rest is there, until the next Look at the most.
func (s *stream) hold() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.over {
		s.held = true
		c.held.Add(1)
	}
}

// unhold is called with conn.mu held.
func (s *stream) unhold() {
	if s.held {
		s.held = false
		s.conn.held.Add(-1)
	}
}

// tell has the caller go on: the head of the response is there.
func (s *stream) tell() {
	c := s.conn
	c.mu.Lock()
	told := s.told
	s.told = true
	s.unhold()
	c.mu.Unlock()
	if !told {
		s.answered.Done()
	}
}

// data is told of DATA, of size bytes with its padding.
func (s *stream) data(p []byte, size int, end bool) error {
	c := s.conn
	c.mu.Lock()
	within := s.inflow.Take(size)
	var increment uint32
	if padding := size - len(p); padding > 0 {
		increment = s.inflow.Give(padding)
	}
	c.mu.Unlock()
	switch {
	case !within:
		return frame.StreamError{Stream: s.id, Code: frame.FlowControlError, Why: "more DATA than the window"}
	case !s.heads:
		return s.violates("DATA before HEADERS")
	case s.rest >= 0:
		if s.rest -= int64(len(p)); s.rest < 0 {
			return s.violates("a body longer than its length")
		}
		if end && s.rest > 0 {
			return s.violates("a response that ends before its length")
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
		return c.out.Credit(s.id, increment)
	}
	return nil
}

// complete ends the stream with the whole response.
func (s *stream) complete(last []byte) {
	first, ok := s.finish(nil)
	if !ok {
		return
	}
	if out := s.conn.out; !out.Abort(&s.sender, errAnswered) { // first, as in fail
		_ = out.Reset(s.id, frame.NoError) // the rest of the request is of no use; RFC 9113, 8.1
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
	if !s.over {
		increment = s.inflow.Give(n)
	}
	c.mu.Unlock()
	if increment > 0 {
		_ = c.out.Credit(s.id, increment) // the connection's failure is told elsewhere
	}
}

// Ender is a context that can be waited for without the costs of context.AfterFunc.
type Ender interface {
	// OnEnd has f called when the context ends, or soon after. There is one f at a time.
	OnEnd(f func())
	// OffEnd takes f back, and reports whether it was not called.
	OffEnd() bool
}

// watch has the stream end with its context.
func (s *stream) watch(ctx context.Context) {
	if s.ender, _ = ctx.(Ender); s.ender != nil {
		s.ender.OnEnd(s.leave)
		return
	}
	s.unwatch = context.AfterFunc(ctx, s.leave)
}

// off ends what watch began. It is for the goroutine of the caller.
func (s *stream) off() {
	if s.ender != nil {
		s.ender.OffEnd()
	} else if s.unwatch != nil {
		s.unwatch()
	}
	s.ender, s.unwatch = nil, nil
}

func (s *stream) leave() { s.fail(left(s.request.Context()), frame.Cancel) }
