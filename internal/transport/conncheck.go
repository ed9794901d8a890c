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
func (r *connChecker) add(l *connPool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.next = (r.next + 1) % checkGroups
	r.groups[r.next] = append(r.groups[r.next], l)
	r.count++
	switch {
	case r.timer == nil:
		r.timer = time.AfterFunc(r.every/checkGroups, r.checkGroup)
	case r.count == 1:
		r.timer.Reset(r.every / checkGroups)
	}
}

// checkGroup checks the pools of one group. The timer is set again when the check is over: a process that did not get
// to run does not catch up.
func (r *connChecker) checkGroup() {
	r.checking.Lock()
	defer r.checking.Unlock()
	r.mu.Lock()
	r.at = (r.at + 1) % checkGroups
	at := r.at
	lanes := r.groups[at]
	r.groups[at] = nil
	r.mu.Unlock()
	now, kept := time.Now(), lanes[:0]
	for _, l := range lanes {
		if l.check(now) {
			kept = append(kept, l)
		}
	}
	clear(lanes[len(kept):])
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count -= len(lanes) - len(kept)
	r.groups[at] = append(kept, r.groups[at]...)
	if r.count > 0 && !r.closed {
		r.timer.Reset(r.every / checkGroups)
	}
}

// close ends the checks, and waits for the one under way.
func (r *connChecker) close() {
	r.mu.Lock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	r.checking.Lock() // to wait is all
	defer r.checking.Unlock()
}
