package httpmsg

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/run"
)

// ConnInfo contains the context values of all requests of a connection.
type ConnInfo struct {
	LocalAddr net.Addr     // under http.LocalAddrContextKey
	Server    *http.Server // under http.ServerContextKey, unless nil
}

// Context is the context that the server gives a request, like net/http's server. It ends when the client has disconnected
// or does not need the response any more, and when the handler has returned. The chain stores its results about a request
// in request.Context. The parent of that is this context, or net/http's.
//
// It is a separate type because most requests are never waited for: for these it does not allocate. The zero value is ready
// for use.
type Context struct {
	conn  *ConnInfo
	ended atomic.Bool

	mu         sync.Mutex // guards the fields below
	done       chan struct{}
	closed     bool             // done is closed, or will be closed when it is made
	afterFuncs run.List[func()] // called at the end
}

var _ context.Context = (*Context)(nil)

// SetConn sets the connection of the request. It must be called first.
func (c *Context) SetConn(i *ConnInfo) { c.conn = i }

// Ended reports whether c has ended.
func (c *Context) Ended() bool { return c.ended.Load() }

// Deadline implements context.Context.
func (c *Context) Deadline() (time.Time, bool) { return time.Time{}, false }

// Err implements context.Context.
func (c *Context) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.closed {
			close(c.done)
		}
	}
	return c.done
}

// Value implements context.Context.
func (c *Context) Value(key any) any {
	if c.conn == nil {
		return nil
	}
	switch key {
	case http.LocalAddrContextKey:
		return c.conn.LocalAddr
	case http.ServerContextKey:
		if c.conn.Server != nil {
			return c.conn.Server
		}
	}
	return nil
}

// AfterFunc calls f in a new goroutine when c ends. Package context uses this method if it exists: without it, each context
// derived from c would cost a waiting goroutine.
func (c *Context) AfterFunc(f func()) (stop func() bool) {
	n := &run.Node[func()]{Value: f}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		go f()
	} else {
		c.afterFuncs.Append(n)
	}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.afterFuncs.Remove(n)
	}
}

// End ends c. It may be called repeatedly.
func (c *Context) End() {
	if c.ended.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	c.ended.Store(true) // first: package context panics if the channel is closed and Err returns nil
	if c.done != nil {
		close(c.done)
	}
	for n := c.afterFuncs.First(); n != nil; n = c.afterFuncs.First() {
		c.afterFuncs.Remove(n)
		go n.Value()
	}
}
