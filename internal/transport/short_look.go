package transport

import (
	"errors"
	"time"
)

// HTTP/1.1 has no pings, so a request on a connection of the short lane cannot tell an endpoint that thinks from one that
// is gone. An HTTP/2 connection to the same endpoint can: there is one as long as this lane is in use, and when it falls
// silent, requests here of which nothing is heard either are given up, as they would be over HTTP/2.
//
// As with pings, what counts is looks and not time: a process that did not get to run for a second has looked once.

// errHeaderLate reads as the library's error, by which judge knows it.
var errHeaderLate = errors.New("timeout awaiting response headers")

// look has the connections looked at: soon when a request is on one of them, or else when idle ones may have had their
// time. Called with mu held.
func (s *short) look(soon bool) {
	if s.ended || s.looking != nil && (s.lookSoon || !soon) {
		return
	}
	s.lookSoon = soon
	after := s.interval(soon)
	if s.looking != nil {
		s.looking.Reset(after)
		return
	}
	s.looking = time.AfterFunc(after, s.looks)
}

func (s *short) interval(soon bool) time.Duration {
	if soon {
		return min(lookEvery, s.options.HeaderTimeout/4)
	}
	return s.idleFor()
}

func (s *short) idleFor() time.Duration { return min(shortIdle, s.options.IdleTimeout) }

// looks is one look at every connection.
func (s *short) looks() {
	present, none := true, true
	if s.inUse() {
		present, none = s.companion()
	}
	if present && !none {
		s.silent.Store(false)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	now := time.Now()
	for c := range s.conns {
		if c.busy {
			s.lookAt(c)
		}
	}
	s.trim(now)
	if len(s.conns) == 0 {
		s.looking, s.lookSoon = nil, false
		return
	}
	s.lookSoon = s.busy > 0
	s.looking.Reset(s.interval(s.lookSoon))
}

func (s *short) inUse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy > 0 && !s.closed
}

// lookAt gives a request up that has waited too long. Called with mu held.
func (s *short) lookAt(c *shortConn) {
	if now := c.reads.Load(); now != c.seen {
		c.seen, c.still = now, 0
		return
	}
	c.still++
	waited := time.Duration(c.still) * s.interval(true)
	switch {
	case s.silent.Load() && waited >= s.options.PingTimeout:
		c.giveUp(errFellSilent)
	case c.heading.Load() && waited >= s.options.HeaderTimeout:
		c.giveUp(errHeaderLate)
	}
}

// trim closes what was idle for long. The oldest are first. Called with mu held.
func (s *short) trim(now time.Time) {
	n := 0
	for n < len(s.idle) && now.Sub(s.idle[n].since) >= s.idleFor() {
		s.forget(s.idle[n])
		_ = s.idle[n].raw.Close()
		n++
	}
	s.idle = append(s.idle[:0], s.idle[n:]...)
	clear(s.idle[len(s.idle):cap(s.idle)])
}

// fellSilent is told that a connection to the endpoint did not answer pings.
func (s *short) fellSilent() {
	s.silent.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.idle {
		s.forget(c)
		_ = c.raw.Close()
	}
	s.idle = nil
}
