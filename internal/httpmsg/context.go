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

// ConnInfo is what the contexts of all requests of a connection have as values.
type ConnInfo struct {
	LocalAddr net.Addr     // under http.LocalAddrContextKey
	Server    *http.Server // under http.ServerContextKey. Nil: nothing
}

// Context is the context that the server gives a request, as net/http's does. It ends when the client has left or does not
// want the response any more, and when the handler has returned. What the chain finds out about a request is in
// request.Context, whose parent this is, or the library's.
//
// It is a type of our own because nobody waits for most requests: nothing is allocated for them. The zero value is ready for use.
type Context struct {
	conn  *ConnInfo
	ended atomic.Bool

	mu         sync.Mutex // guards what follows
	done       chan struct{}
	closed     bool             // done is, or would be
	afterFuncs run.List[func()] // called at the end
}

var _ context.Context = (*Context)(nil)

// SetConn sets the connection of the request, before anything else is called.
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

// AfterFunc calls f on a goroutine of its own when c ends. Package context asks for this method: without it, each context that
// is made from c would cost a goroutine that waits.
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

// End ends c. It may be called again.
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
	c.ended.Store(true) // first: whoever finds the channel closed must find an error, or package context panics
	if c.done != nil {
		close(c.done)
	}
	for n := c.afterFuncs.First(); n != nil; n = c.afterFuncs.First() {
		c.afterFuncs.Remove(n)
		go n.Value()
	}
}
