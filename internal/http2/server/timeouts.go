package server

import (
	"errors"
	"time"

	"portico.dev/internal/http2/frame"
)

// watch is what time does to a connection. It looks now and then, and not at each request.
type watch struct {
	timer   *time.Timer
	stopped bool
	looking chan struct{} // closed when the look in hand has ended; nil: there is none

	born    time.Time
	greeted bool
	header  time.Time // since when a header block is not whole; zero: none is begun
	quiet   time.Time // the last look that found a frame
	asked   time.Time // when a PING was sent that nothing came after; zero: none is
	idle    time.Time // the last look that found a stream, or a new one gone
	last    uint32    // the newest stream then
}

// ask and farewell are what PINGs of ours carry.
var (
	ask      = [8]byte{'p', 'o', 'r', 't', 'i', 'c', 'o', '?'}
	farewell = [8]byte{'p', 'o', 'r', 't', 'i', 'c', 'o', '!'}
)

// look does what is due and sets the timer for the next look.
func (c *conn) look() {
	c.mu.Lock()
	w := &c.watch
	if w.stopped {
		c.mu.Unlock()
		return
	}
	now := time.Now()
	if w.timer == nil {
		w.born, w.quiet, w.idle = now, now, now
		w.timer = time.AfterFunc(time.Hour, c.look)
	}
	act := c.due(now)
	stalled := c.stalledLocked(now)
	w.timer.Reset(c.nextLook(now))
	looking := make(chan struct{})
	w.looking = looking
	c.mu.Unlock()
	if act != nil {
		act()
	}
	for _, st := range stalled {
		st.kill(frame.Cancel, errStalled)
	}
	close(looking)
}

// stall is what looks know of an answer that waits for its client's windows.
type stall struct {
	since time.Time // zero: it does not wait
	sent  int64     // then
}

var errStalled = errors.New("the client did not take the answer")

// leastTaken is how much of an answer a client must take within StallTimeout.
const leastTaken = 4 << 10

// stalledLocked are the streams whose clients have left their answers untaken for too long.
func (c *conn) stalledLocked(now time.Time) (all []*stream) {
	for _, st := range c.streams {
		sent, blocked := c.out.Progress(&st.send)
		switch {
		case !blocked || st.lasting:
			st.stall = stall{}
		case st.stall.since.IsZero() || sent-st.stall.sent >= leastTaken:
			st.stall = stall{now, sent}
		case now.Sub(st.stall.since) >= c.server.c.StallTimeout:
			all = append(all, st)
		}
	}
	return all
}

// due is what is to be done now, or nil. Called with mu held.
func (c *conn) due(now time.Time) func() {
	w, s := &c.watch, &c.server.c
	switch {
	case !w.greeted:
		if now.Sub(w.born) >= s.GreetTimeout {
			return c.cut
		}
		return nil
	case !w.header.IsZero() && now.Sub(w.header) >= s.HeaderTimeout:
		return c.cut
	}
	if len(c.streams) > 0 || c.last != w.last {
		w.idle, w.last = now, c.last
	}
	if c.heard.Swap(false) {
		w.quiet, w.asked = now, time.Time{}
	}
	switch {
	case !w.asked.IsZero() && now.Sub(w.asked) >= s.PingTimeout:
		return c.cut
	case now.Sub(w.idle) >= s.IdleTimeout:
		return c.goAway
	case w.asked.IsZero() && now.Sub(w.quiet) >= s.PingAfter:
		w.asked = now
		return func() { _ = c.out.Probe(ask) }
	}
	return nil
}

// nextLook is when to look again. Called with mu held.
func (c *conn) nextLook(now time.Time) time.Duration {
	w, s := &c.watch, &c.server.c
	if !w.greeted {
		return max(w.born.Add(s.GreetTimeout).Sub(now), time.Millisecond)
	}
	next := min(s.PingAfter/2, s.IdleTimeout/4, s.StallTimeout/3)
	if !w.asked.IsZero() {
		next = min(next, w.asked.Add(s.PingTimeout).Sub(now))
	}
	if !w.header.IsZero() {
		next = min(next, w.header.Add(s.HeaderTimeout).Sub(now))
	}
	return max(next, time.Millisecond)
}

// headerBegan is told, by the reader, of a header block that is not whole.
func (c *conn) headerBegan() {
	if c.slow {
		return
	}
	c.slow = true
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := &c.watch; !w.stopped {
		w.header = time.Now()
		w.timer.Reset(min(c.server.c.HeaderTimeout, c.nextLook(w.header)))
	}
}

// headerEnded is told of its end.
func (c *conn) headerEnded() {
	c.slow = false
	c.mu.Lock()
	c.watch.header = time.Time{}
	c.mu.Unlock()
}

// waits is told by frame.Reader that the rest of a frame is not there yet.
func (c *conn) waits(t frame.Type) {
	if t == frame.Headers || t == frame.Continuation {
		c.headerBegan()
	}
}

func (c *conn) stopWatch() {
	c.mu.Lock()
	w := &c.watch
	w.stopped = true
	w.timer.Stop()
	c.bye.stop()
	looking := w.looking
	c.mu.Unlock()
	<-looking
}
