package http1

import (
	"net/http"
	"net/url"
	"time"

	"portico.dev/internal/httpmsg"
)

// exchange is a request and its answer: one allocation has all of it. Handlers may keep parts of it as long as they like,
// so that it is not used again.
type exchange struct {
	conn *conn
	req  http.Request
	url  url.URL
	life httpmsg.Life
	body body
	res  response
	heed heed

	// Guarded by the connection's mu.
	readBy  time.Time // the handler's deadline for the body; zero: none
	coming  bool      // the body is being read from the connection
	limited bool      // the handler set a deadline for writing
	over    bool      // the handler has returned
}

// serve runs the handler, and reports whether the connection goes on.
func (x *exchange) serve() (again bool) {
	returned := false
	defer func() {
		if !returned {
			x.broke(recover())
		}
	}()
	x.res.x = x
	if x.body.err != nil {
		x.conn.server.ears.add(x)
	}
	x.conn.server.c.Handler.ServeHTTP(&x.res, &x.req)
	again = x.finish()
	returned = true
	return again
}

// broke is told of a panic in the handler; nil is a goroutine that is ended by runtime.Goexit.
func (x *exchange) broke(p any) {
	c := x.conn
	x.life.End()
	if p != nil && p != http.ErrAbortHandler {
		c.panicked(p)
	}
	if !x.res.leave() {
		c.cut()
	}
	x.body.leave()
	x.deafen()
	x.clean()
}

// finish sends what is left of the answer, and makes the connection ready for the next request, if there can be one.
func (x *exchange) finish() (again bool) {
	c := x.conn
	x.life.End()
	left := x.body.leave()
	if left < 0 && x.res.undecided() && x.body.finish(chunkPatience) {
		left = 0
	}
	again, hijacked := x.res.finish(left)
	x.deafen()
	x.clean()
	switch {
	case hijacked:
		return false
	case x.res.err != nil:
		c.cut()
		return false
	case again && left != 0 && !x.body.finish(c.server.c.HeaderTimeout):
		again = false
	}
	if c.server.leaving.Load() {
		again = false
	}
	if again {
		if len(c.in.unused()) == 0 {
			c.spare()
			c.rest()
		}
		return true
	}
	if left != 0 || len(c.in.unused()) > 0 {
		c.part()
	}
	return false
}

// clean takes back what the handler did to the connection.
func (x *exchange) clean() {
	c := x.conn
	c.mu.Lock()
	x.over = true
	limited := x.limited && !c.hijacked
	c.mu.Unlock()
	if limited {
		_ = c.net.SetWriteDeadline(time.Time{})
	}
	if f := x.req.MultipartForm; f != nil {
		_ = f.RemoveAll()
	}
}
