package serve

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// life is the context of a request. It ends with the stream, and when the handler has returned.
//
// It is a type of our own because most requests end without anybody having waited for it: then nothing is made for it.
type life struct {
	conn *conn
	over atomic.Bool

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

var _ context.Context = (*life)(nil)

// Deadline implements context.Context.
func (l *life) Deadline() (time.Time, bool) { return time.Time{}, false }

// Err implements context.Context.
func (l *life) Err() error {
	if l.over.Load() {
		return context.Canceled
	}
	return nil
}

// Done implements context.Context.
func (l *life) Done() <-chan struct{} {
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
func (l *life) Value(key any) any {
	switch key {
	case http.LocalAddrContextKey:
		return l.conn.local
	case http.ServerContextKey:
		if s := l.conn.server.c.HTTP; s != nil {
			return s
		}
	}
	return nil
}

// AfterFunc has f called on a goroutine of its own when the life ends. Package context asks for it, and then needs no
// goroutine that waits.
func (l *life) AfterFunc(f func()) (stop func() bool) {
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

func (l *life) withdraw(w *wish) bool {
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

func (l *life) end() {
	if l.over.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	l.over.Store(true) // first: whoever finds the channel closed must find an error, or package context panics
	if l.done != nil {
		close(l.done)
	}
	for w := l.first; w != nil; w = w.next {
		w.granted = true
		go w.f()
	}
	l.first = nil
}
