package client

import (
	"net/http"
	"time"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/portico/http2/frame"
)

// timeouts is the state of Check from previous checks.
type timeouts struct {
	pingAfter, pingTimeout, headerTimeout, protocolTimeout int // in checks

	lastReads        uint64 // reads at the last check
	idleChecks       int    // consecutive checks without a read
	pingChecks       int    // checks since a ping was sent, including the current one; 0 if none was sent
	sinceHeaderCheck int
}

func (w *timeouts) begin(c *engine.ClientConfig) {
	w.pingAfter, w.pingTimeout, w.headerTimeout = checksIn(c.PingAfter, c.CheckInterval), checksIn(c.PingTimeout, c.CheckInterval), checksIn(c.HeaderTimeout, 4*c.CheckInterval)
	w.protocolTimeout = checksIn(c.ProtocolTimeout, c.CheckInterval)
}

func checksIn(d, every time.Duration) int { return max(1, int((d+every-1)/every)) }

// Check detects timeouts. One goroutine must call it every Config.CheckInterval; it does not wait. If idle is set, it also
// pings connections without requests.
//
// Timeouts are counted in checks because this process may not run for a second (an overloaded machine, a paused virtual
// machine). Responses are then unread in the sockets, and by the clock all connections would time out at once, with their
// requests. A late check is still one check.
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
			c.fail(&engine.Error{Kind: engine.PingTimeout, Err: errPingTimeout})
		}
		return
	}
	if w.idleChecks < w.pingAfter {
		return
	}
	switch busy := c.hasStreams(); {
	case busy:
		w.pingChecks = 1
		_ = c.w.WritePingNoWait([8]byte{}) // if it fails, the connection ends
	case idle:
		w.pingChecks = 1
		_ = c.w.WritePing([8]byte{}) // if it fails, the connection ends; nothing else is being sent, so it does not wait for long
	}
}

// checkProtocolTimeouts closes the connection if a frame required by the protocol is overdue.
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
	c.fail(&engine.Error{Kind: engine.ProtocolViolation, Err: why})
	return true
}

// headerBlockStarted is called when a header block is incomplete.
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

// headerChecks is how often checkHeaderTimeouts must find a stream waiting. The first time may be right after the stream
// began to wait.
const headerChecks = 5

// checkHeaderTimeouts fails the streams that have waited too long for their header.
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
		s.fail(&engine.Error{Kind: engine.HeaderTimeout, Err: errHeaderTimeout}, frame.Cancel)
	}
}

// releaseHeld releases held headers, because the rest of the response is slow.
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

// AbandonWaiting fails requests with method GET or HEAD that have no response header yet, with an Error of kind Abandoned.
// Other requests are not affected, because the server may act on them, and neither is the connection.
func (c *Conn) AbandonWaiting(why error) {
	var waiting []*stream
	c.mu.Lock()
	for _, s := range c.streams {
		if !s.returned && !s.held && (s.request.Method == http.MethodGet || s.request.Method == http.MethodHead) {
			waiting = append(waiting, s)
		}
	}
	c.mu.Unlock()
	for _, s := range waiting {
		s.fail(&engine.Error{Kind: engine.Abandoned, Err: why}, frame.Cancel)
	}
}
