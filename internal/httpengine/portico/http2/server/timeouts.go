package server

import (
	"errors"
	"time"

	"portico.dev/internal/httpengine/portico/http2/frame"
)

// timeouts is the state of a connection's timeouts. They are checked periodically, and not with each request.
type timeouts struct {
	timer    *time.Timer
	stopped  bool
	checking chan struct{} // closed when the current check has ended; nil before the first check

	opened      time.Time
	prefaceRead bool
	headerSince time.Time // when the incomplete header block began; zero if there is none
	lastFrame   time.Time // the last check that found a frame
	pingSent    time.Time // when the unanswered PING was sent; zero if there is none
	idleSince   time.Time // the last check that found a stream, or a new lastID
	lastID      uint32    // the newest stream at idleSince
}

// pingData and goAwayPingData are the payloads of the server's PINGs.
var (
	pingData       = [8]byte{'p', 'o', 'r', 't', 'i', 'c', 'o', '?'}
	goAwayPingData = [8]byte{'p', 'o', 'r', 't', 'i', 'c', 'o', '!'}
)

// checkTimeouts performs the actions that are due, and sets the timer.
func (c *conn) checkTimeouts() {
	c.mu.Lock()
	w := &c.timeouts
	if w.stopped {
		c.mu.Unlock()
		return
	}
	now := time.Now()
	if w.timer == nil {
		w.opened, w.lastFrame, w.idleSince = now, now, now
		w.timer = time.AfterFunc(time.Hour, c.checkTimeouts)
	}
	act := c.dueAction(now)
	stalled := c.stalledLocked(now)
	w.timer.Reset(c.nextCheck(now))
	looking := make(chan struct{})
	w.checking = looking
	c.mu.Unlock()
	if act != nil {
		act()
	}
	for _, st := range stalled {
		st.reset(frame.Cancel, errStalled)
	}
	close(looking)
}

// stall describes a response that waits for its client's windows.
type stall struct {
	start time.Time // zero if it does not wait
	sent  int64     // bytes sent at that time
}

var errStalled = errors.New("the client did not take the answer")

// minProgress is how much of a response a client must accept within StallTimeout.
const minProgress = 4 << 10

// stalledLocked returns the streams with clients that have not read for too long.
func (c *conn) stalledLocked(now time.Time) (all []*stream) {
	for _, st := range c.streams {
		sent, blocked := c.w.Progress(&st.send)
		switch {
		case !blocked || st.longRunning:
			st.stall = stall{}
		case st.stall.start.IsZero() || sent-st.stall.sent >= minProgress:
			st.stall = stall{now, sent}
		case now.Sub(st.stall.start) >= c.server.c.StallTimeout:
			all = append(all, st)
		}
	}
	return all
}

// dueAction returns the action that is due now, or nil. The caller must hold mu.
func (c *conn) dueAction(now time.Time) func() {
	w, s := &c.timeouts, &c.server.c
	switch {
	case !w.prefaceRead:
		if now.Sub(w.opened) >= s.PrefaceTimeout {
			return c.closeNow
		}
		return nil
	case !w.headerSince.IsZero() && now.Sub(w.headerSince) >= s.HeaderTimeout:
		return c.closeNow
	}
	if len(c.streams) > 0 || c.lastID != w.lastID {
		w.idleSince, w.lastID = now, c.lastID
	}
	if c.frameSeen.Swap(false) {
		w.lastFrame, w.pingSent = now, time.Time{}
	}
	switch {
	case !w.pingSent.IsZero() && now.Sub(w.pingSent) >= s.PingTimeout:
		return c.closeNow
	case now.Sub(w.idleSince) >= s.IdleTimeout:
		return c.goAway
	case w.pingSent.IsZero() && now.Sub(w.lastFrame) >= s.PingAfter:
		w.pingSent = now
		return func() { _ = c.w.WritePingNoWait(pingData) }
	}
	return nil
}

// nextCheck returns the time until the next check. The caller must hold mu.
func (c *conn) nextCheck(now time.Time) time.Duration {
	w, s := &c.timeouts, &c.server.c
	if !w.prefaceRead {
		return max(w.opened.Add(s.PrefaceTimeout).Sub(now), time.Millisecond)
	}
	next := min(s.PingAfter/2, s.IdleTimeout/4, s.StallTimeout/3)
	if !w.pingSent.IsZero() {
		next = min(next, w.pingSent.Add(s.PingTimeout).Sub(now))
	}
	if !w.headerSince.IsZero() {
		next = min(next, w.headerSince.Add(s.HeaderTimeout).Sub(now))
	}
	return max(next, time.Millisecond)
}

// headerStarted is called when a header block is incomplete.
func (c *conn) headerStarted() {
	if c.partialBlock {
		return
	}
	c.partialBlock = true
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := &c.timeouts; !w.stopped {
		w.headerSince = time.Now()
		w.timer.Reset(min(c.server.c.HeaderTimeout, c.nextCheck(w.headerSince)))
	}
}

// headerEnded is called when the header block is complete.
func (c *conn) headerEnded() {
	c.partialBlock = false
	c.mu.Lock()
	c.timeouts.headerSince = time.Time{}
	c.mu.Unlock()
}

// onPartialFrame is called by frame.Reader when the rest of a frame has not arrived.
func (c *conn) onPartialFrame(t frame.Type) {
	if t == frame.Headers || t == frame.Continuation {
		c.headerStarted()
	}
}

func (c *conn) stopTimeouts() {
	c.mu.Lock()
	w := &c.timeouts
	w.stopped = true
	w.timer.Stop()
	c.goaway.stop()
	looking := w.checking
	c.mu.Unlock()
	<-looking
}
