package transport

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"portico.dev/internal/engine"
)

// A backend that takes requests and answers none of them fails no request: each ends at its caller's deadline, which is
// nobody's fault. What gives it away is that nothing at all is heard of it any more, and that is kept count of here.

// overdueAfter is how long a client's request may wait, while nothing is heard of the backend, before whoever judges the
// backend is told. Being told costs a probe: a request that may be slow by nature is no reason to tell sooner.
const overdueAfter = time.Second

// errFellSilent is a connection on which pings were not answered.
var errFellSilent = errors.New("the connection fell silent: pings are not answered")

// errOverdue is told once for each silence.
var errOverdue = errors.New("a request waits and nothing is heard of the backend")

// Silence is a backend of which nothing was heard since a client's request went to it: no response headers and no byte
// of a response, from any endpoint, for anybody.
type Silence struct {
	// Since is when that request was sent, zero when the backend is not silent.
	Since time.Time
	// Broken is whether its connections are silent too: one did not answer pings, or could not be made in time.
	// A server that is merely slow answers pings.
	Broken bool
}

// Silence is how long the backend has been silent. What a probe asks does not begin a silence; its answer ends one. A
// connection that fell silent, or could not be made, begins one in any case.
func (b *Backend) Silence() Silence {
	since := b.silence.since.Load()
	if since == 0 {
		return Silence{}
	}
	return Silence{Since: time.Unix(0, since), Broken: b.silence.broken.Load()}
}

// silence costs a request that is answered two writes to memory, and one timer a second however many requests there are.
type silence struct {
	overdue func()
	since   atomic.Int64 // Unix nanoseconds, 0 when not silent
	broken  atomic.Bool
	armed   atomic.Bool // look is going to be called
}

// asked is told that a request is being sent.
func (s *silence) asked(now time.Time) {
	if s.since.Load() == 0 && s.since.CompareAndSwap(0, now.UnixNano()) {
		s.arm(overdueAfter)
	}
}

// withdrawn is told that a request which was asked at that time could not be sent, or did not come to its end, by its own
// fault: whatever is not heard of the backend, it is not the answer to that one.
func (s *silence) withdrawn(asked time.Time) {
	s.since.CompareAndSwap(asked.UnixNano(), 0)
}

// heard is told of any sign of the server's life that is more than an answered ping.
func (s *silence) heard() {
	if s.since.Load() != 0 {
		s.broken.Store(false)
		s.since.Store(0)
	}
}

// broke is told of a connection that fell silent at since, or later.
func (s *silence) broke(since time.Time) {
	s.broken.Store(true)
	s.since.CompareAndSwap(0, since.UnixNano())
}

func (s *silence) arm(wait time.Duration) {
	if !s.armed.Load() && s.armed.CompareAndSwap(false, true) {
		time.AfterFunc(wait, s.look)
	}
}

// look clears armed before it reads since, and asked writes since before it reads armed: one of them sees the other.
func (s *silence) look() {
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

// unheard reports the failures in which the other side said nothing at all.
func unheard(err error) bool {
	var timeout net.Error
	var known *engine.ClientError
	if errors.As(err, &known) && known.Fate == engine.Silent {
		return true
	}
	return errors.Is(err, errFellSilent) || errors.Is(err, errMute) || errors.Is(err, errSlow) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
