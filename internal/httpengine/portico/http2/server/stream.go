package server

import (
	"errors"
	"net/http"
	"net/url"
	"runtime"

	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/httpengine/portico/http2/frame"
)

// stream is a request and its response, in one allocation. It is not reused, because handlers may keep parts of it.
type stream struct {
	conn      *conn
	req       http.Request
	url       url.URL
	ctx       httpmsg.Context
	body      body
	res       response
	send      frame.SendStream
	deadlines deadlines
	handler   http.Handler // nil for Config.Handler
	memory    streamMemory

	// Guarded by the connection's mu.
	recvWindow    frame.RecvWindow
	contentLength int64 // -1 if unknown
	bodyReceived  int64
	received      bool // the client has ended its side
	counted       bool // in conn.open
	longRunning   bool // the response may wait for the client without a limit
	stall         stall
}

// clientResetError is the error of a stream that the client reset.
type clientResetError struct{ code frame.Code }

func (e clientResetError) Error() string { return "the client reset the stream: " + e.code.String() }

var errHandlerPanic = errors.New("the handler panicked")

// addReceivedLocked counts n bytes of the body, and its end.
func (st *stream) addReceivedLocked(n int, end bool) error {
	st.bodyReceived += int64(n)
	if st.contentLength >= 0 && (st.bodyReceived > st.contentLength || end && st.bodyReceived != st.contentLength) {
		return frame.StreamError{Stream: st.send.ID, Code: frame.ProtocolError, Reason: "the body is not as long as Content-Length says"}
	}
	st.received = st.received || end
	return nil
}

func (st *stream) returnWindowLocked(n int) uint32 {
	if st.received {
		return 0 // nothing more will arrive
	}
	return st.recvWindow.Return(n)
}

// Consumed implements frame.Consumer.
func (st *stream) Consumed(n int) { _ = st.conn.returnWindow(st, n) } // the goroutine that reads detects the error

// returnWindow lets the client send n more bytes on the connection and, unless st is nil or has ended, on st.
func (c *conn) returnWindow(st *stream, n int) error {
	var id, toStream uint32
	c.mu.Lock()
	toConn := c.recvWindow.Return(n)
	if st != nil && c.streams[st.send.ID] == st {
		id, toStream = st.send.ID, st.returnWindowLocked(n)
	}
	c.mu.Unlock()
	if toConn == 0 && toStream == 0 {
		return nil
	}
	return c.w.WriteWindowUpdates(id, toStream, toConn)
}

// abort ends the handler's use of the stream. It sends nothing.
func (st *stream) abort(why error) (sent bool) {
	sent = st.conn.w.Abort(&st.send, why)
	st.body.Fail(why)
	st.ctx.End()
	return sent
}

// removeStream removes a stream, and reports whether it existed. ours is set if the server reset it.
func (c *conn) removeStream(st *stream, ours bool) bool {
	c.mu.Lock()
	c.uncountLocked(st)
	known := c.streams[st.send.ID] == st
	if known {
		delete(c.streams, st.send.ID)
		if ours {
			c.noteResetLocked(st.send.ID)
		}
	}
	emptied := known && c.drained()
	c.mu.Unlock()
	if emptied {
		c.closeAfterLast()
	}
	return known
}

// uncountLocked and noteResetLocked must be called with mu held.
func (c *conn) uncountLocked(st *stream) {
	if st.counted {
		st.counted = false
		c.open--
	}
}

func (c *conn) noteResetLocked(id uint32) {
	c.resetStreams[c.resetCount%maxResetStreams] = id
	c.resetCount++
}

// streamError resets a stream that violates the protocol.
func (c *conn) streamError(why frame.StreamError) error {
	c.mu.Lock()
	st := c.streams[why.Stream]
	begun := why.Stream <= c.lastID
	c.mu.Unlock()
	switch {
	case st != nil:
		c.removeStream(st, true)
		st.abort(why)
	case begun:
		c.mu.Lock()
		c.noteResetLocked(why.Stream)
		c.mu.Unlock()
	}
	if begun {
		if err := c.w.WriteRSTStream(why.Stream, why.Code); err != nil {
			return err
		}
	}
	return c.rate.takeReset()
}

// reset resets a stream on the server's initiative.
func (st *stream) reset(code frame.Code, why error) {
	known := st.conn.removeStream(st, true) // first: a handler whose write fails removes the stream too, and sends no reset
	if sent := st.abort(why); known && !sent {
		_ = st.conn.w.WriteRSTStream(st.send.ID, code)
	}
}

// run runs the handler on w. It then runs the function that the handler passed to Continue on a new worker, which has a
// small stack.
func (st *stream) run(w *worker) {
	returned, continues := false, false
	defer func() {
		if !returned {
			st.panicked(recover())
		}
		if !continues {
			st.release(w)
		}
	}()
	if rest := st.res.rest; rest != nil {
		st.res.rest = nil
		rest()
	} else {
		st.res.worker, st.res.fields = w, w.fields[:0]
		st.handle()
	}
	if continues = st.res.rest != nil; continues {
		next := newWorker(w.pool, st)
		st.res.moveTo(next)
		go next.loop()
	} else {
		st.finish()
	}
	returned = true
}

// handle calls the handler.
func (st *stream) handle() {
	if st.ctx.Ended() {
		return
	}
	h := st.handler
	if h == nil {
		h = st.conn.server.c.Handler
	}
	h.ServeHTTP(&st.res, &st.req)
}

// panicked is called after a panic of the handler. p is nil if runtime.Goexit ended the goroutine.
func (st *stream) panicked(p any) {
	st.ctx.End()
	st.reset(frame.InternalError, errHandlerPanic)
	if p != nil && p != http.ErrAbortHandler {
		stack := make([]byte, 64<<10)
		stack = stack[:runtime.Stack(stack, false)]
		st.conn.server.logf("http2: panic serving %v: %v\n%s", st.conn.remote, p, stack)
	}
}

// finish sends the rest of the response.
func (st *stream) finish() {
	st.ctx.End()
	c := st.conn
	c.mu.Lock()
	c.uncountLocked(st) // the client may open another stream as soon as it receives the end of this one
	c.mu.Unlock()
	err := st.res.finish()
	c.mu.Lock()
	unread := err == nil && !st.received && c.streams[st.send.ID] == st
	c.mu.Unlock()
	c.removeStream(st, unread)
	if unread { // RFC 9113, section 8.1: the client need not send the rest
		_ = c.w.WriteRSTStream(st.send.ID, frame.NoError)
	}
}

// release releases the stream's resources, and passes the next queued stream to w.
func (st *stream) release(w *worker) {
	st.deadlines.stop()
	st.memory.grant.Release()
	st.res.release()
	_ = st.body.Close()
	if f := st.req.MultipartForm; f != nil {
		_ = f.RemoveAll()
	}
	c := st.conn
	c.mu.Lock()
	for len(c.queued) > 0 && w.next == nil {
		next := c.queued[0]
		c.queued = c.queued[1:]
		if !c.isDroppedLocked(next) {
			w.next = next
		}
	}
	if w.next == nil {
		c.handling--
		c.queued = nil
	}
	c.mu.Unlock()
	if w.next == nil {
		c.w.AddActive(-1)
		c.running.Done()
	}
}

// endSent is called when END_STREAM is about to be sent while the handler still runs, because the client may then open
// another stream.
func (c *conn) endSent(st *stream) {
	c.mu.Lock()
	c.uncountLocked(st)
	c.mu.Unlock()
}
