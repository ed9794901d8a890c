package http1

import (
	"net/http"
	"net/url"
	"sync"
	"time"

	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/run"
)

// exchange is a request and its response, in one allocation. It is not reused, because handlers may keep parts of it.
type exchange struct {
	conn  *conn
	req   http.Request
	url   url.URL
	ctx   httpmsg.Context
	body  body
	res   response
	watch disconnectWatch

	// Guarded by the connection's mu.
	bodyDeadline     time.Time // set by the handler; zero if there is none
	bodyReading      bool      // the body is being read from the connection
	writeDeadlineSet bool      // by the handler
	returned         bool      // the handler has returned
}

// serve runs the handler, and reports whether the connection stays open.
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

// panicked is called after a panic of the handler. p is nil if runtime.Goexit ended the goroutine.
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
	x.stopWatching()
	x.cleanup()
}

// finish sends the rest of the response, and prepares the connection for the next request, if one is possible.
func (x *exchange) finish() (again bool) {
	c := x.conn
	x.ctx.End()
	left := x.body.detach()
	if left < 0 && x.res.canClose() && x.body.drain(chunkDrainTimeout) {
		left = 0
	}
	again, hijacked := x.res.finish(left)
	x.stopWatching()
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

// cleanup resets the write deadline set by the handler, and removes the files of a multipart form.
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

// A long-running handler should be notified when its client disconnects, which only a read of the connection detects. Most
// handlers return before it matters, so a read is only started for handlers that run for a while.

// disconnectWatcher starts these reads. It contains the running handlers in the order in which they started, and one timer
// for all. Because every request uses it, it counts rounds instead of reading the time, like run.DelayQueue.
type disconnectWatcher struct {
	delay time.Duration

	mu      sync.Mutex // guards the fields below, and each disconnectWatch
	waiting run.List[*exchange]
	round   uint32 // number of calls of check
	timer   *time.Timer
	armed   bool // timer is set
}

// disconnectWatch is the disconnectWatcher's state of a request.
type disconnectWatch struct {
	node    run.Node[*exchange]
	round   uint32 // in which it was added
	stopped bool
	ended   chan struct{} // closed when the read has ended; nil if none has started
}

// add watches x after a while, unless its handler has returned. The body of x must have been read.
func (d *disconnectWatcher) add(x *exchange) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := &x.watch; w.stopped || w.node.Listed() || w.ended != nil {
		return
	}
	x.watch.round, x.watch.node.Value = d.round, x
	d.waiting.Append(&x.watch.node)
	if !d.armed {
		d.arm()
	}
}

// arm sets the timer. The caller must hold mu.
func (d *disconnectWatcher) arm() {
	d.armed = true
	if d.timer == nil {
		d.timer = time.AfterFunc(d.delay, d.check)
	} else {
		d.timer.Reset(d.delay)
	}
}

// remove stops watching x. If a read has started, the returned channel is closed when it has ended.
func (d *disconnectWatcher) remove(x *exchange) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	x.watch.stopped = true
	d.waiting.Remove(&x.watch.node)
	return x.watch.ended
}

// check starts a read for each request that was added before the last check.
func (d *disconnectWatcher) check() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := d.waiting.First(); n != nil && n.Value.watch.round != d.round; n = d.waiting.First() {
		d.waiting.Remove(n)
		n.Value.watch.ended = make(chan struct{})
		go n.Value.readForDisconnect() // the caller of remove waits for it
	}
	d.round++
	if d.armed = d.waiting.First() != nil; d.armed {
		d.arm()
	}
}

// readForDisconnect reads once, and ends the request's context if the client has disconnected. If the next request has
// begun instead, its first bytes are kept, and the client is not watched any more until the current request is answered.
func (x *exchange) readForDisconnect() {
	defer close(x.watch.ended)
	c := x.conn
	if !c.setReadDeadline(time.Time{}) {
		return
	}
	if err := c.in.fill(); err != nil && c.in.err != nil {
		x.ctx.End()
	}
}

// stopWatching stops watching the client. Afterwards the caller may use the reader.
func (x *exchange) stopWatching() {
	ended := x.conn.server.disconnects.remove(x)
	if ended == nil {
		return
	}
	x.conn.stopReading()
	<-ended
	x.conn.resumeReading()
}
