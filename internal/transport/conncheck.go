package transport

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/engine"
)

// connChecker checks the connection pools of a Set that have connections, periodically. One timer serves all: with a
// thousand backends, timers of their own would be a fifth of what an idle process costs.
type connChecker struct {
	every time.Duration // between two checks of one pool

	checking sync.Mutex // held while a group is checked

	mu     sync.Mutex // guards what follows
	groups [checkGroups][]*connPool
	at     int // the group checked last
	next   int // the group of new pools
	count  int
	timer  *time.Timer // nil until there is a pool
	closed bool
}

// checkGroups is into how many groups the pools are divided. A tick checks one group, so that not all send pings at
// once.
const checkGroups = 5

// fewPools is how many pools a group has before new pools come into the next one. A tick for each of a few pools would wake an idle process
// more often than all else.
const fewPools = 16

// checksPerTimeout is how many checks there are in the time after which a silent connection is closed.
const checksPerTimeout = 6

// unusedPingEvery is how many checks there are to a ping of an endpoint that no client has asked anything for
// IdleTimeout, while there are no more than manyPools pools; twice as many up to twice as many pools, and so on. No request
// waits for the result of that ping, and with a thousand backends most are like that: pinging them as often as the others would
// be half of what an idle process costs, and as often as a few of them a third.
const (
	unusedPingEvery = 6
	manyPools       = 250
)

// unusedPings is how many checks there are to a ping of an endpoint that no client uses.
func (c *connChecker) unusedPings() int { // with mu held
	return unusedPingEvery * max(1, (c.count+manyPools-1)/manyPools)
}

// pingDue reports whether connections without requests may be pinged at this check, with one in every so many checks for an
// endpoint that no client uses. It is called by the connChecker.
func (p *connPool) pingDue(every int) bool {
	if p.skipPings != nil && p.skipPings() {
		return false
	}
	if p.unused == nil {
		return true
	}
	if p.checks%unusedPingEvery == 0 { // to ask at every check would cost more than the checks
		p.rarelyPinged = p.unused()
	}
	p.checks++
	return p.checks%every == 0 || !p.rarelyPinged
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

// A backend that takes requests and answers none of them fails no request: each ends at its caller's deadline, which is
// no failure of the backend by itself. The sign is that nothing at all is received from it any more, which is tracked here.

// overdueAfter is how long a client's request may wait, while nothing is received from the backend, before
// Options.OnFailure is called. The call costs a probe: slow requests are no reason to call it sooner.
const overdueAfter = time.Second

// errPingsUnanswered is a connection on which pings were not answered.
var errPingsUnanswered = errors.New("the connection fell silent: pings are not answered")

// errOverdue is reported once for each silence.
var errOverdue = errors.New("a request waits and nothing is heard of the backend")

// Silence is the state of a backend from which nothing was received since a client's request was sent to it: no
// response headers and no byte of a response, from any endpoint, for any client.
type Silence struct {
	// Since is when that request was sent, zero when the backend is not silent.
	Since time.Time
	// Broken is whether its connections are silent too: one did not answer pings, or could not be made in time.
	// A server that is merely slow answers pings.
	Broken bool
	// Tunnel is the network to which the backend's tunnel leads, if nothing has come through that for anybody since: whether it is the backend
	// that is silent, or the tunnel, is not known. Empty otherwise.
	Tunnel string
}

// Silence is how long the backend has been silent. What a probe asks does not begin a silence; its answer ends one. A
// connection that fell silent, or could not be made, begins one in any case.
func (b *Backend) Silence() Silence {
	since := b.silence.since.Load()
	if since == 0 {
		return Silence{}
	}
	s := Silence{Since: time.Unix(0, since), Broken: b.silence.broken.Load()}
	if t := b.set.options.Tunnel; t != nil && t.Received().Before(s.Since) {
		s.Tunnel = t.Network
	}
	return s
}

// silence counts what a backend does not answer. It costs an answered request two atomic writes, and one timer a second
// however many requests there are.
type silence struct {
	overdue func()
	since   atomic.Int64 // Unix nanoseconds, 0 when not silent
	broken  atomic.Bool
	armed   atomic.Bool // check is going to be called
}

// requestSent is called when a request is being sent.
func (s *silence) requestSent(now time.Time) {
	if s.since.Load() == 0 && s.since.CompareAndSwap(0, now.UnixNano()) {
		s.arm(overdueAfter)
	}
}

// requestWithdrawn is called when a request that was sent at that time failed by its own fault: its missing response
// says nothing about the backend.
func (s *silence) requestWithdrawn(asked time.Time) {
	s.since.CompareAndSwap(asked.UnixNano(), 0)
}

// responseReceived is called for any sign of the server's life that is more than an answered ping.
func (s *silence) responseReceived() {
	if s.since.Load() != 0 {
		s.broken.Store(false)
		s.since.Store(0)
	}
}

// connectionSilent is called for a connection that does not answer pings since that time, or later.
func (s *silence) connectionSilent(since time.Time) {
	s.broken.Store(true)
	s.since.CompareAndSwap(0, since.UnixNano())
}

func (s *silence) arm(wait time.Duration) {
	if !s.armed.Load() && s.armed.CompareAndSwap(false, true) {
		time.AfterFunc(wait, s.check)
	}
}

// check clears armed before it reads since, and requestSent writes since before it reads armed: one of them sees the
// other.
func (s *silence) check() {
	s.armed.Store(false)
	since := s.since.Load()
	if since == 0 {
		return
	}
	if wait := overdueAfter - time.Since(time.Unix(0, since)); wait > 0 {
		s.arm(wait)
		return
	}
	s.overdue()
}

// noResponse reports the failures in which the other side sent nothing at all.
func noResponse(err error) bool {
	var timeout net.Error
	var known *engine.ClientError
	if errors.As(err, &known) && known.Kind == engine.PingTimeout {
		return true
	}
	return errors.Is(err, errPingsUnanswered) || errors.Is(err, errNoSettings) || errors.Is(err, errSlow) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
