package server

import (
	"errors"
	"net/http"
	"net/url"
	"runtime"

	"portico.dev/internal/http2/frame"
	"portico.dev/internal/httpmsg"
)

// stream is a request and its answer: one allocation has all of it. Handlers may keep parts of it as long as they like, so
// that it is not used again.
type stream struct {
	conn    *conn
	req     http.Request
	url     url.URL
	life    httpmsg.Life
	body    body
	res     response
	send    frame.Sender
	limits  deadlines
	serving http.Handler // nil: the server's
	holding holding

	// Guarded by the connection's mu.
	inflow   frame.Inflow
	declared int64 // how long the body says that it is; -1: it does not
	got      int64
	received bool // the client has ended its side
	counted  bool // among the open ones
	lasting  bool // its answer may wait for the client for as long as it takes
	stall    stall
}

// resetError is the end of a stream that the client wanted.
type resetError struct{ code frame.Code }

func (e resetError) Error() string { return "the client reset the stream: " + e.code.String() }

var errPanicked = errors.New("the handler panicked")

// receiveLocked counts n bytes of the body, and its end.
func (st *stream) receiveLocked(n int, end bool) error {
	st.got += int64(n)
	if st.declared >= 0 && (st.got > st.declared || end && st.got != st.declared) {
		return frame.StreamError{Stream: st.send.ID, Code: frame.ProtocolError, Why: "the body is not as long as Content-Length says"}
	}
	st.received = st.received || end
	return nil
}

func (st *stream) creditLocked(n int) uint32 {
	if st.received {
		return 0 // nothing more comes
	}
	return st.inflow.Give(n)
}

// Consumed implements frame.Consumer.
func (st *stream) Consumed(n int) { _ = st.conn.credit(st, n) } // what went wrong, the reader finds

// credit allows the client n more bytes, for the connection and, unless st is nil or has ended, for st.
func (c *conn) credit(st *stream, n int) error {
	var id, toStream uint32
	c.mu.Lock()
	toConn := c.inflow.Give(n)
	if st != nil && c.streams[st.send.ID] == st {
		id, toStream = st.send.ID, st.creditLocked(n)
	}
	c.mu.Unlock()
	if toConn == 0 && toStream == 0 {
		return nil
	}
	return c.out.Credits(id, toStream, toConn)
}

// abort ends what the handler does with the stream, and tells nobody.
func (st *stream) abort(why error) (sent bool) {
	sent = st.conn.out.Abort(&st.send, why)
	st.body.Fail(why)
	st.life.End()
	return sent
}

// forget has the connection know the stream no more. It reports whether it knew it. ours is whether we break it.
func (c *conn) forget(st *stream, ours bool) bool {
	c.mu.Lock()
	c.uncount(st)
	known := c.streams[st.send.ID] == st
	if known {
		delete(c.streams, st.send.ID)
		if ours {
			c.noteBroken(st.send.ID)
		}
	}
	emptied := known && c.emptied()
	c.mu.Unlock()
	if emptied {
		c.part()
	}
	return known
}

// uncount and noteBroken are called with mu held.
func (c *conn) uncount(st *stream) {
	if st.counted {
		st.counted = false
		c.open--
	}
}

func (c *conn) noteBroken(id uint32) {
	c.broken[c.breaks%recently] = id
	c.breaks++
}

// breakStream ends a stream that breaks the protocol, and nothing else.
func (c *conn) breakStream(why frame.StreamError) error {
	c.mu.Lock()
	st := c.streams[why.Stream]
	begun := why.Stream <= c.last
	c.mu.Unlock()
	switch {
	case st != nil:
		c.forget(st, true)
		st.abort(why)
	case begun:
		c.mu.Lock()
		c.noteBroken(why.Stream)
		c.mu.Unlock()
	}
	if begun {
		if err := c.out.Reset(why.Stream, why.Code); err != nil {
			return err
		}
	}
	return c.bounds.reset()
}

// kill resets a stream because of something on our side.
func (st *stream) kill(code frame.Code, why error) {
	known := st.conn.forget(st, true) // first: a handler that fails to write forgets the stream too, and resets nothing
	if sent := st.abort(why); known && !sent {
		_ = st.conn.out.Reset(st.send.ID, code)
	}
}

// run runs the handler on w.
func (st *stream) run(w *worker) {
	st.res.worker = w
	st.res.fields = w.fields[:0]
	returned := false
	defer func() {
		if !returned {
			st.panicked(recover())
		}
		st.done(w)
	}()
	if !st.life.Over() {
		h := st.serving
		if h == nil {
			h = st.conn.server.c.Handler
		}
		h.ServeHTTP(&st.res, &st.req)
	}
	st.finish()
	returned = true
}

// panicked is told of a panic in the handler; nil is a goroutine that was ended by runtime.Goexit.
func (st *stream) panicked(p any) {
	st.life.End()
	st.kill(frame.InternalError, errPanicked)
	if p != nil && p != http.ErrAbortHandler {
		stack := make([]byte, 64<<10)
		stack = stack[:runtime.Stack(stack, false)]
		st.conn.server.logf("http2: panic serving %v: %v\n%s", st.conn.remote, p, stack)
	}
}

// finish sends what is left of the answer.
func (st *stream) finish() {
	st.life.End()
	c := st.conn
	c.mu.Lock()
	c.uncount(st) // the client may begin another one as soon as it sees the end of this one
	c.mu.Unlock()
	err := st.res.finish()
	c.mu.Lock()
	unread := err == nil && !st.received && c.streams[st.send.ID] == st
	c.mu.Unlock()
	c.forget(st, unread)
	if unread { // RFC 9113, 8.1: the client need not send the rest
		_ = c.out.Reset(st.send.ID, frame.NoError)
	}
}

// done gives back what the stream had, and has w run the next one that waits.
func (st *stream) done(w *worker) {
	st.limits.stop()
	st.res.leave()
	_ = st.body.Close()
	if f := st.req.MultipartForm; f != nil {
		_ = f.RemoveAll()
	}
	c := st.conn
	c.mu.Lock()
	for len(c.waiting) > 0 && w.next == nil {
		next := c.waiting[0]
		c.waiting = c.waiting[1:]
		if c.streams[next.send.ID] == next {
			w.next = next
		}
	}
	if w.next == nil {
		c.busy--
		c.waiting = nil
	}
	c.mu.Unlock()
	if w.next == nil {
		c.out.Expect(-1)
		c.running.Done()
	}
}

// sending has the client begin another stream: the end of st is about to be sent, while its handler still runs.
func (c *conn) sending(st *stream) {
	c.mu.Lock()
	c.uncount(st)
	c.mu.Unlock()
}
