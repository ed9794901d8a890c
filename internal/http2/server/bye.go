package server

import (
	"time"

	"portico.dev/internal/http2/frame"
)

// The stages of leaving (RFC 9113, 6.8). The client first hears that there is an end, and may still begin streams, as some
// are on their way; when it has confirmed, or some time has passed, it is told which stream is the last.
const (
	byeStaying = iota
	byeTold
	byeFinal
	byeParted // no streams are left
	byeBroken // the client broke the protocol
	byeGone
)

type bye struct {
	stage int
	last  uint32      // no stream beyond it is served, from byeFinal on
	timer *time.Timer // ends byeTold
}

func (b *bye) stop() {
	if b.timer != nil {
		b.timer.Stop()
	}
}

// goAway begins to leave. It does not wait.
func (c *conn) goAway() {
	c.mu.Lock()
	if c.bye.stage != byeStaying {
		c.mu.Unlock()
		return
	}
	c.bye.stage = byeTold
	c.bye.timer = time.AfterFunc(c.server.c.GoAwayGrace, c.lastCall)
	c.mu.Unlock()
	_ = c.out.GoAway(frame.MaxStreamID, frame.NoError, "")
	_ = c.out.Probe(farewell)
}

// lastCall says which stream is the last.
func (c *conn) lastCall() {
	c.mu.Lock()
	if c.bye.stage != byeTold {
		c.mu.Unlock()
		return
	}
	c.bye.stage, c.bye.last = byeFinal, c.last
	last, none := c.last, len(c.streams) == 0
	c.bye.stop()
	c.mu.Unlock()
	_ = c.out.GoAway(last, frame.NoError, "")
	close(c.toldAll)
	if none {
		c.part()
	}
}

// part ends the connection, after its last stream: the client is given the time to do so itself.
func (c *conn) part() {
	c.mu.Lock()
	if c.bye.stage != byeFinal {
		c.mu.Unlock()
		return
	}
	c.bye.stage = byeParted
	c.mu.Unlock()
	_ = c.net.SetReadDeadline(time.Now().Add(c.server.c.GoAwayGrace))
}

// emptied reports whether the last stream that is served has ended. Called with mu held.
func (c *conn) emptied() bool { return c.bye.stage == byeFinal && len(c.streams) == 0 }

// turnAway tells a client that came too late that nothing of what it sends is served: it may send it elsewhere, writes too.
func (c *conn) turnAway() {
	_ = c.net.SetDeadline(time.Now().Add(c.server.c.GoAwayGrace))
	if c.out.Settings(true) == nil && c.out.GoAway(0, frame.NoError, "") == nil {
		c.overhear()
	}
	c.out.Close(errParted)
	_ = c.net.Close()
	c.out.Wait()
}
