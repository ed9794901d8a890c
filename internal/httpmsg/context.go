package httpmsg

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ConnInfo is what requests of a connection find in their contexts.
type ConnInfo struct {
	LocalAddr net.Addr     // under http.LocalAddrContextKey
	Server    *http.Server // under http.ServerContextKey. Nil: nothing
}

// Context is the context of a request. It ends when the client does not want the answer any more, and when the handler has
// returned.
//
// It is a type of our own because most requests end without anybody having waited for it: then nothing is made for it. Its
// zero value is a life, of nowhere.
type Context struct {
	conn  *ConnInfo
	ended atomic.Bool

	mu     sync.Mutex // guards what follows
	done   chan struct{}
	closed bool  // done is, or would be
	first  *wish // what happens at the end
}

// wish is what happens when a life ends. It stands in a list.
type wish struct {
	f              func()
	previous, next *wish
	granted        bool // or withdrawn
}

var _ context.Context = (*Context)(nil)

// SetConn says where l is lived. It is called before anything else.
func (l *Context) SetConn(h *ConnInfo) { l.conn = h }

// Ended reports whether l has ended.
func (l *Context) Ended() bool { return l.ended.Load() }

// Deadline implements context.Context.
func (l *Context) Deadline() (time.Time, bool) { return time.Time{}, false }

// Err implements context.Context.
func (l *Context) Err() error {
	if l.ended.Load() {
		return context.Canceled
	}
	return nil
}

// Done implements context.Context.
func (l *Context) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.closed {
			close(l.done)
		}
	}
	return l.done
}

// Value implements context.Context.
func (l *Context) Value(key any) any {
	if l.conn == nil {
		return nil
	}
	switch key {
	case http.LocalAddrContextKey:
		return l.conn.LocalAddr
	case http.ServerContextKey:
		if l.conn.Server != nil {
			return l.conn.Server
		}
	}
	return nil
}

// AfterFunc has f called on a goroutine of its own when the life ends. Package context asks for it, and then needs no
// goroutine that waits.
func (l *Context) AfterFunc(f func()) (stop func() bool) {
	w := &wish{f: f}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		w.granted = true
		go f()
	} else {
		if l.first != nil {
			l.first.previous, w.next = w, l.first
		}
		l.first = w
	}
	return func() bool { return l.withdraw(w) }
}

func (l *Context) withdraw(w *wish) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.granted {
		return false
	}
	w.granted = true
	if w.previous != nil {
		w.previous.next = w.next
	} else {
		l.first = w.next
	}
	if w.next != nil {
		w.next.previous = w.previous
	}
	return true
}

// End ends l. It may be called again.
func (l *Context) End() {
	if l.ended.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	l.ended.Store(true) // first: whoever finds the channel closed must find an error, or package context panics
	if l.done != nil {
		close(l.done)
	}
	for w := l.first; w != nil; w = w.next {
		w.granted = true
		go w.f()
	}
	l.first = nil
}
