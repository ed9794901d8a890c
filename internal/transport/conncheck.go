package transport

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/httpengine/engine"
)

// connChecker periodically checks all connection pools of a Set that have connections. They share one timer: with a
// thousand backends, individual timers would be a fifth of the CPU time of an idle process.
type connChecker struct {
	every time.Duration // interval between checks of the same pool

	checking sync.Mutex // held while checking a group

	mu     sync.Mutex // guards the fields below
	groups [checkGroups][]*connPool
	at     int // the group that was checked last
	next   int // the group to which new pools are added
	count  int
	timer  *time.Timer // nil until there is a pool
	closed bool
}

// checkGroups is the number of groups of pools. A tick checks one group, so that not all pools send pings at once.
const checkGroups = 5

// fewPools is the size at which new pools are added to the next group. With only a few pools, a tick for each of them
// would wake an idle process more often than all other timers.
const fewPools = 16

// checksPerTimeout is the number of checks within the time after which a silent connection is closed.
const checksPerTimeout = 6

// unusedPingEvery is the number of checks per ping of an endpoint without client requests for IdleTimeout. It applies
// to at most manyPools pools, doubles up to twice as many pools, and so on. No request waits for the result of these
// pings. With a thousand backends, most of them unused, pinging them at the normal rate would be half of the CPU time
// of an idle process, and at the rate for few pools a third.
const (
	unusedPingEvery = 6
	manyPools       = 250
)

// unusedPings returns the number of checks per ping of an endpoint that no client uses. It is called with mu held.
func (c *connChecker) unusedPings() int {
	return unusedPingEvery * max(1, (c.count+manyPools-1)/manyPools)
}

// pingDue reports whether this check may ping connections without requests. If no client uses the endpoint, it returns true only
// once per every checks. It is called by the connChecker.
func (p *connPool) pingDue(every int) bool {
	if p.skipPings != nil && p.skipPings() {
		return false
	}
	if p.unused == nil {
		return true
	}
	if p.checks%unusedPingEvery == 0 { // calling it at every check would cost more than the checks
		p.rarelyPinged = p.unused()
	}
	p.checks++
	return p.checks%every == 0 || !p.rarelyPinged
}

// checkInterval returns the interval between two checks of a connection.
func (o *Options) checkInterval() time.Duration {
	return min((o.PingAfter+o.PingTimeout)/checksPerTimeout, o.HeaderTimeout/4)
}

// add adds l to the checked pools until its check reports that it has no connections left.
func (c *connChecker) add(l *connPool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if len(c.groups[c.next]) >= fewPools {
		c.next = (c.next + 1) % checkGroups
	}
	c.groups[c.next] = append(c.groups[c.next], l)
	c.count++
	switch {
	case c.timer == nil:
		c.timer = time.AfterFunc(c.every/checkGroups, c.checkGroup)
	case c.count == 1:
		c.timer.Reset(c.every / checkGroups)
	}
}

// checkGroup checks the pools of one group. The timer is reset after the check, so that a suspended process does not
// catch up on missed ticks.
func (c *connChecker) checkGroup() {
	c.checking.Lock()
	defer c.checking.Unlock()
	c.mu.Lock()
	c.at = (c.at + 1) % checkGroups
	at := c.at
	pools := c.groups[at]
	c.groups[at] = nil
	unusedPings := c.unusedPings()
	c.mu.Unlock()
	now, kept := time.Now(), pools[:0]
	for _, p := range pools {
		if p.check(now, unusedPings) {
			kept = append(kept, p)
		}
	}
	clear(pools[len(kept):])
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count -= len(pools) - len(kept)
	c.groups[at] = append(kept, c.groups[at]...)
	if c.count == 0 || c.closed {
		return
	}
	wait := c.every / checkGroups
	for next := (c.at + 1) % checkGroups; len(c.groups[next]) == 0; next = (c.at + 1) % checkGroups {
		c.at = next
		wait += c.every / checkGroups
	}
	c.timer.Reset(wait)
}

// close stops the checks and waits for a running one.
func (c *connChecker) close() {
	c.mu.Lock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	c.checking.Lock() // waits for checkGroup
	defer c.checking.Unlock()
}

// A backend that accepts requests but never answers does not fail requests: each ends at its caller's deadline, which
// does not count as a failure of the backend. The code below detects such a backend by the absence of any received
// data.

// overdueAfter is how long a client's request may wait, while nothing is received from the backend, before
// Options.OnFailure is called. The call triggers a probe, so it should not be made for requests that are merely slow.
const overdueAfter = time.Second

// errPingsUnanswered means that pings on a connection were not answered.
var errPingsUnanswered = errors.New("the connection fell silent: pings are not answered")

// errOverdue is reported once per silence.
var errOverdue = errors.New("a request waits and nothing is heard of the backend")

// Silence describes a backend from which nothing was received since a client's request was sent to it: no response
// headers and no response data, from any endpoint, for any client.
type Silence struct {
	// Since is the time when that request was sent, zero if the backend is not silent.
	Since time.Time
	// Broken is set if a connection did not answer pings or could not be established in time. A server that is merely
	// slow answers pings.
	Broken bool
	// Tunnel is the network of the backend's tunnel if nothing was received through the tunnel since then, for any
	// backend. In this case either the backend or the tunnel may be silent. Empty otherwise.
	Tunnel string
}

// Silence returns the current silence of the backend. A probe's request does not begin a silence, but its response
// ends one. A connection that becomes silent or cannot be established begins a silence in any case.
func (b *Backend) Silence() Silence {
	since := b.silence.start.Load()
	if since == 0 {
		return Silence{}
	}
	s := Silence{Since: time.Unix(0, since), Broken: b.silence.broken.Load()}
	if t := b.set.options.Tunnel; t != nil && t.Received().Before(s.Since) {
		s.Tunnel = t.Network
	}
	return s
}

// silence tracks a backend's unanswered requests. It costs two atomic writes per answered request, and at most one
// timer per second regardless of the number of requests.
type silence struct {
	overdue func()
	start   atomic.Int64 // Unix nanoseconds, 0 when not silent
	broken  atomic.Bool
	armed   atomic.Bool // check is scheduled
}

// requestSent is called before a request is sent.
func (s *silence) requestSent(now time.Time) {
	if s.start.Load() == 0 && s.start.CompareAndSwap(0, now.UnixNano()) {
		s.arm(overdueAfter)
	}
}

// requestWithdrawn is called when a request sent at that time failed because of the request itself. The missing
// response is then not evidence against the backend.
func (s *silence) requestWithdrawn(asked time.Time) {
	s.start.CompareAndSwap(asked.UnixNano(), 0)
}

// responseReceived is called when anything other than a ping response is received from the server.
func (s *silence) responseReceived() {
	if s.start.Load() != 0 {
		s.broken.Store(false)
		s.start.Store(0)
	}
}

// connectionSilent is called for a connection that has not answered pings since the given time or later.
func (s *silence) connectionSilent(since time.Time) {
	s.broken.Store(true)
	s.start.CompareAndSwap(0, since.UnixNano())
}

func (s *silence) arm(wait time.Duration) {
	if !s.armed.Load() && s.armed.CompareAndSwap(false, true) {
		time.AfterFunc(wait, s.check)
	}
}

// check clears armed before it reads start, and requestSent writes start before it reads armed. So at least one of
// them observes the other's write.
func (s *silence) check() {
	s.armed.Store(false)
	since := s.start.Load()
	if since == 0 {
		return
	}
	if wait := overdueAfter - time.Since(time.Unix(0, since)); wait > 0 {
		s.arm(wait)
		return
	}
	s.overdue()
}

// noResponse reports whether err is a failure in which the peer sent nothing.
func noResponse(err error) bool {
	var timeout net.Error
	var known *engine.Error
	if errors.As(err, &known) && known.Kind == engine.PingTimeout {
		return true
	}
	return errors.Is(err, errPingsUnanswered) || errors.Is(err, errNoSettings) || errors.Is(err, errSlow) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
