package http1

import (
	"net/http"
	"net/url"
	"sync"
	"time"

	"portico.dev/internal/httpmsg"
)

// exchange is a request and its answer: one allocation has all of it. Handlers may keep parts of it as long as they like,
// so that it is not used again.
type exchange struct {
	conn *conn
	req  http.Request
	url  url.URL
	ctx  httpmsg.Context
	body body
	res  response
	heed heed

	// Guarded by the connection's mu.
	bodyDeadline     time.Time // the handler's deadline for the body; zero: none
	bodyReading      bool      // the body is being read from the connection
	writeDeadlineSet bool      // the handler set a deadline for writing
	returned         bool      // the handler has returned
}

// serve runs the handler, and reports whether the connection goes on.
func (x *exchange) serve() (again bool) {
	returned := false
	defer func() {
		if !returned {
			x.panicked(recover())
		}
	}()
	x.res.x = x
	if x.body.err != nil {
		x.conn.server.disconnects.add(x)
	}
	x.conn.server.c.Handler.ServeHTTP(&x.res, &x.req)
	again = x.finish()
	returned = true
	return again
}

// panicked is told of a panic in the handler; nil is a goroutine that is ended by runtime.Goexit.
func (x *exchange) panicked(p any) {
	c := x.conn
	x.ctx.End()
	if p != nil && p != http.ErrAbortHandler {
		c.logPanic(p)
	}
	if !x.res.abandon() {
		c.closeNow()
	}
	x.body.detach()
	x.deafen()
	x.cleanup()
}

// finish sends what is left of the answer, and makes the connection ready for the next request, if there can be one.
func (x *exchange) finish() (again bool) {
	c := x.conn
	x.ctx.End()
	left := x.body.detach()
	if left < 0 && x.res.canClose() && x.body.drain(chunkDrainTimeout) {
		left = 0
	}
	again, hijacked := x.res.finish(left)
	x.deafen()
	x.cleanup()
	switch {
	case hijacked:
		return false
	case x.res.err != nil:
		c.closeNow()
		return false
	case again && left != 0 && !x.body.drain(c.server.c.HeaderTimeout):
		again = false
	}
	if c.server.shuttingDown.Load() {
		again = false
	}
	if again {
		if len(c.in.unused()) == 0 {
			c.releaseBuffers()
			c.setIdleDeadline()
		}
		return true
	}
	if left != 0 || len(c.in.unused()) > 0 {
		c.lingeringClose()
	}
	return false
}

// cleanup takes back what the handler did to the connection.
func (x *exchange) cleanup() {
	c := x.conn
	c.mu.Lock()
	x.returned = true
	limited := x.writeDeadlineSet && !c.hijacked
	c.mu.Unlock()
	if limited {
		_ = c.net.SetWriteDeadline(time.Time{})
	}
	if f := x.req.MultipartForm; f != nil {
		_ = f.RemoveAll()
	}
}

// A handler that runs for long should hear when its client is gone, and only who reads the connection hears that. Most
// handlers are done before it could matter, so that listening begins late: for all that run longer than a while.

// ears know which handlers run, in the order in which they began. One timer is enough for all.
type ears struct {
	after time.Duration

	mu          sync.Mutex // guards what follows, and heed
	first, last *exchange
	round       uint32 // of looking
	timer       *time.Timer
	waiting     bool // for the timer
}

// heed is what ears know of a request.
type heed struct {
	previous, next *exchange
	round          uint32 // in which it came
	queued, over   bool
	ended          chan struct{} // closed when listening has ended; nil: it has not begun
}

// add has x listened for, unless its handler has returned. Its body is read.
func (e *ears) add(x *exchange) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x.heed.over || x.heed.queued || x.heed.ended != nil {
		return
	}
	x.heed.queued, x.heed.round, x.heed.previous = true, e.round, e.last
	if e.last != nil {
		e.last.heed.next = x
	} else {
		e.first = x
	}
	e.last = x
	if !e.waiting {
		e.wait()
	}
}

func (e *ears) wait() {
	e.waiting = true
	if e.timer == nil {
		e.timer = time.AfterFunc(e.after, e.look)
	} else {
		e.timer.Reset(e.after)
	}
}

// remove has x not be listened for any more. When listening has begun, what it returns is closed when it has ended.
func (e *ears) remove(x *exchange) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	x.heed.over = true
	e.drop(x)
	return x.heed.ended
}

// drop is called with mu held.
func (e *ears) drop(x *exchange) {
	h := &x.heed
	if !h.queued {
		return
	}
	if h.previous != nil {
		h.previous.heed.next = h.next
	} else {
		e.first = h.next
	}
	if h.next != nil {
		h.next.heed.previous = h.previous
	} else {
		e.last = h.previous
	}
	h.queued, h.previous, h.next = false, nil, nil
}

// look begins to listen for those that were there when it looked last.
func (e *ears) look() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for x := e.first; x != nil && x.heed.round != e.round; x = e.first {
		e.drop(x)
		x.heed.ended = make(chan struct{})
		go x.listen() // whoever takes x out waits for it
	}
	e.round++
	if e.waiting = e.first != nil; e.waiting {
		e.wait()
	}
}

// listen hears of the client's end. What it hears else is the beginning of the next request: it is kept, and nothing more
// is heard of the client until this one is answered.
func (x *exchange) listen() {
	defer close(x.heed.ended)
	c := x.conn
	if !c.setReadDeadline(time.Time{}) {
		return
	}
	if err := c.in.fill(); err != nil && c.in.err != nil {
		x.ctx.End()
	}
}

// deafen ends listening. Afterwards the reader is the caller's.
func (x *exchange) deafen() {
	ended := x.conn.server.disconnects.remove(x)
	if ended == nil {
		return
	}
	x.conn.stopReading()
	<-ended
	x.conn.resumeReading()
}
