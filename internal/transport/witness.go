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

// errConnectionLost is an idle connection that the other side closed, or that no longer answered pings.
var errConnectionLost = errors.New("an idle connection was lost")

// miss is told that a connection is closed. One that was idle and that nobody here wanted to close is the first, and for
// an idle backend the only, sign that the other side went.
func (l *lane) miss(c *conn) {
	l.mu.Lock()
	idle := c.active == 0
	wanted := l.closed || c.retired || time.Since(c.idleSince) >= l.options.IdleTimeout
	l.mu.Unlock()
	if idle && !wanted && l.lost != nil {
		l.lost(errConnectionLost)
	}
}
