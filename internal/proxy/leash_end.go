package proxy

import "context"

// OnEnd is AfterFunc for a request to a backend, without its costs and without haste: a client that leaves soon after it
// asked is noticed at the next look of the vigil.
func (l *leash) OnEnd(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		go f()
		return
	}
	l.cut = f
}

// OffEnd takes back what OnEnd was given, and reports whether it was not called.
func (l *leash) OffEnd() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.cut != nil
	l.cut = nil
	return waiting
}

// AfterFunc is what context.AfterFunc asks a context for: without it each use would cost a goroutine. One f at a time; f
// must not block.
func (l *leash) AfterFunc(f func()) (stop func() bool) {
	l.mu.Lock()
	l.watchLocked()
	if l.err != nil {
		l.mu.Unlock()
		go f()
		return func() bool { return false }
	}
	if l.ended != nil {
		l.mu.Unlock() // which Done and Err take
		return context.AfterFunc(plainContext{l}, f)
	}
	defer l.mu.Unlock()
	w := &waiter{f: f}
	l.ended = w
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		waiting := l.ended == w
		if waiting {
			l.ended = nil
		}
		return waiting
	}
}

// waiter is what AfterFunc was given.
type waiter struct{ f func() }

// plainContext is a leash that others may wait for as well.
type plainContext struct{ context.Context }
