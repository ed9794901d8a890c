package transport

import (
	"errors"
	"time"
)

// What requests show of a backend is told to whoever judges it (Options.OnSuccess, OnFailure), so that it need not ask.

// successGap is the least time between two reports that a backend answers: one is as good as thousands.
const successGap = time.Second

// vouch reports that a client's request was answered at now.
func (b *Backend) vouch(now time.Time) {
	told := b.vouched.Load()
	if now.UnixNano()-told < int64(successGap) || b.set.options.OnSuccess == nil {
		return
	}
	if b.vouched.CompareAndSwap(told, now.UnixNano()) {
		b.set.options.OnSuccess(b)
	}
}

// errConnectionLost is an idle connection that the other side closed.
var errConnectionLost = errors.New("an idle connection was lost")

// missGap is the least time between two reports of idle connections that were lost in one lane. There are servers that
// close every connection after a request or a few seconds. If each of those led to a probe, the probe would lead to the
// next.
const missGap = time.Minute

// over is told that a connection is closed. One that was idle and that nobody here wanted to close is the first, and for
// an idle backend the only, sign that the other side went.
func (l *lane) over(c *conn) {
	now := time.Now()
	l.mu.Lock()
	silent := c.joined && c.Silent()
	var broke error
	if c.joined && l.violated != nil {
		broke = c.Violated()
	}
	wanted := l.closed || c.retired
	// A server that falls silent is worth telling each time: that takes longer than a probe.
	missed := c.joined && l.lost != nil && c.active == 0 && !wanted && (silent || l.missed.IsZero() || now.Sub(l.missed) >= missGap)
	if missed {
		l.missed = now
	}
	l.mu.Unlock()
	if broke != nil {
		l.violated(broke)
	}
	if silent && l.silence != nil {
		l.silence()
	}
	switch {
	case missed && silent:
		l.lost(errFellSilent)
	case missed:
		l.lost(errConnectionLost)
	}
}
