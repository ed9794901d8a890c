package transport

import (
	"sync"
	"time"
)

// connChecker checks the connection pools of a Set that have connections, periodically. One timer serves all: with a
// thousand backends, timers of their own would be a fifth of what an idle process costs.
type connChecker struct {
	every time.Duration // between two checks of one pool

	checking sync.Mutex // held while a group is checked

	mu     sync.Mutex // guards what follows
	groups [checkGroups][]*connPool
	at     int // the group checked last
	next   int // the group of the next new pool
	count  int
	timer  *time.Timer // nil until there is a pool
	closed bool
}

// checkGroups is into how many groups the pools are divided. A tick checks one group, so that not all send pings at
// once.
const checkGroups = 5

// checksPerTimeout is how many checks there are in the time after which a silent connection is closed.
const checksPerTimeout = 6

// unusedPingEvery is how many checks there are to a ping of an endpoint that no client has asked anything for
// IdleTimeout. No request waits for the result of that ping, and with a thousand backends most are like that: pinging
// them as often as the others would be half of what an idle process costs.
const unusedPingEvery = 6

// pingDue reports whether connections without requests may be pinged at this check. It is called by the connChecker.
func (p *connPool) pingDue() bool {
	if p.skipPings != nil && p.skipPings() {
		return false
	}
	p.checks++
	return p.checks%unusedPingEvery == 0 || p.unused == nil || !p.unused()
}

// checkInterval is the time between two checks of a connection.
func (o *Options) checkInterval() time.Duration {
	return min((o.PingAfter+o.PingTimeout)/checksPerTimeout, o.HeaderTimeout/4)
}

// add has p checked until its check reports that it has no connections left.
func (c *connChecker) add(l *connPool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.next = (c.next + 1) % checkGroups
	c.groups[c.next] = append(c.groups[c.next], l)
	c.count++
	switch {
	case c.timer == nil:
		c.timer = time.AfterFunc(c.every/checkGroups, c.checkGroup)
	case c.count == 1:
		c.timer.Reset(c.every / checkGroups)
	}
}

// checkGroup checks the pools of one group. The timer is set again when the check is over: a process that did not get
// to run does not catch up.
func (c *connChecker) checkGroup() {
	c.checking.Lock()
	defer c.checking.Unlock()
	c.mu.Lock()
	c.at = (c.at + 1) % checkGroups
	at := c.at
	pools := c.groups[at]
	c.groups[at] = nil
	c.mu.Unlock()
	now, kept := time.Now(), pools[:0]
	for _, p := range pools {
		if p.check(now) {
			kept = append(kept, p)
		}
	}
	clear(pools[len(kept):])
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count -= len(pools) - len(kept)
	c.groups[at] = append(kept, c.groups[at]...)
	if c.count > 0 && !c.closed {
		c.timer.Reset(c.every / checkGroups)
	}
}

// close ends the checks, and waits for the one under way.
func (c *connChecker) close() {
	c.mu.Lock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	c.checking.Lock() // to wait is all
	defer c.checking.Unlock()
}
