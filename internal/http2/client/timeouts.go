package client

import (
	"time"

	"portico.dev/internal/http2/frame"
)

// timeouts is what Look knows from the look before.
type timeouts struct {
	pingAfter, pingTimeout, headerTimeout, protocolTimeout int // looks

	lastReads        uint64 // reads at the last look
	idleChecks       int    // looks in a row that found no more
	pingChecks       int    // looks since a ping was sent, with the one that sent it; 0: none was
	sinceHeaderCheck int
}

func (w *timeouts) begin(c *Config) {
	w.pingAfter, w.pingTimeout, w.headerTimeout = checksIn(c.PingAfter, c.CheckInterval), checksIn(c.PingTimeout, c.CheckInterval), checksIn(c.HeaderTimeout, 4*c.CheckInterval)
	w.protocolTimeout = checksIn(c.ProtocolTimeout, c.CheckInterval)
}

func checksIn(d, every time.Duration) int { return max(1, int((d+every-1)/every)) }

// Check looks for what did not come in time. It is to be called every Config.Every, by one goroutine at a time, and does
// not wait. idle has a connection without requests pinged too.
//
// Looks are counted and not time: when this process does not get to run for a second (an overloaded machine, a virtual
// machine that was paused), the clock goes on, answers lie unread in the sockets, and by the clock every connection would
// be given up at the same time, with the requests on it. A look that comes late is one look all the same.
func (c *Conn) Check(idle bool) {
	w := &c.timeouts
	c.checks.Add(1)
	if c.heldCount.Load() > 0 {
		c.releaseHeld()
	}
	if w.sinceHeaderCheck++; w.sinceHeaderCheck >= w.headerTimeout {
		w.sinceHeaderCheck = 0
		c.checkHeaderTimeouts()
	}
	if c.checkProtocolTimeouts() {
		return
	}
	if now := c.reads.Load(); now != w.lastReads {
		w.lastReads, w.idleChecks, w.pingChecks = now, 0, 0
		return
	}
	w.idleChecks++
	if w.pingChecks > 0 {
		if w.pingChecks++; w.pingChecks > w.pingTimeout {
			c.fail(&Error{PingTimeout, errPingTimeout})
		}
		return
	}
	if w.idleChecks < w.pingAfter {
		return
	}
	switch busy := c.hasStreams(); {
	case busy:
		w.pingChecks = 1
		_ = c.w.WritePingNoWait([8]byte{}) // the connection's failure is told elsewhere
	case idle:
		w.pingChecks = 1
		_ = c.w.WritePing([8]byte{}) // as above; nothing else is on its way, so that there is nothing to wait for
	}
}

// checkProtocolTimeouts gives the connection up when something is missing that the protocol asks for.
func (c *Conn) checkProtocolTimeouts() bool {
	now, most := c.checks.Load(), int64(c.timeouts.protocolTimeout)
	var why frame.ConnError
	switch began := c.headerBlockSince.Load(); {
	case began > 0 && now-began >= most:
		why = frame.ConnError{Code: frame.EnhanceYourCalm, Reason: "the header block does not end"}
	case now > most && !c.acknowledged.Load():
		why = frame.ConnError{Code: frame.SettingsTimeout, Reason: "SETTINGS are not acknowledged"}
	default:
		return false
	}
	c.fail(&Error{ProtocolViolation, why})
	return true
}

// headerBlockStarted is told, by the reader, of a header block that is not whole.
func (c *Conn) headerBlockStarted() {
	if c.headerBlockSince.Load() == 0 {
		c.headerBlockSince.Store(c.checks.Load() + 1)
	}
}

func (c *Conn) hasStreams() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams) > 0
}

// headerChecks is how often tooLate must find a stream waiting: the first time may come as soon as it has begun.
const headerChecks = 5

// checkHeaderTimeouts gives up the streams that have waited for their headers.
func (c *Conn) checkHeaderTimeouts() {
	var late []*stream
	c.mu.Lock()
	for _, s := range c.streams {
		if s.sent && !s.returned {
			if s.headerWaits++; s.headerWaits >= headerChecks {
				late = append(late, s)
			}
		}
	}
	c.mu.Unlock()
	for _, s := range late {
		s.fail(&Error{HeaderTimeout, errHeaderTimeout}, frame.Cancel)
	}
}

// releaseHeld has the heads go on that wait for the rest of a short response: it is slow.
func (c *Conn) releaseHeld() {
	var slow []*stream
	c.mu.Lock()
	for _, s := range c.streams {
		if s.held {
			slow = append(slow, s)
		}
	}
	c.mu.Unlock()
	for _, s := range slow {
		s.release()
	}
}
