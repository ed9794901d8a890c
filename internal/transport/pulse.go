package transport

import (
	"errors"
	"time"
)

// errFellSilent is a connection on which pings were not answered.
var errFellSilent = errors.New("the connection fell silent: pings are not answered")

// beats is how many looks at a connection in a row must find that nothing was read before it is given up.
const beats = 6

// libraryPings is how much longer than ours the library's patience with pings is: it sends them, and the last word is
// ours.
const libraryPings = 20

// pulse gives a connection up when nothing is read from it though pings are sent.
//
// The library could do that, by the clock. But when this process does not get to run for a second (an overloaded
// machine, a virtual machine that was paused), the clock goes on, the answers lie unread in the socket, and every
// connection would be given up at the same time, with the requests on it. So looks are counted and not time: one that
// comes late is one look all the same.
type pulse struct {
	timer  *time.Timer
	seen   uint64 // reads at the last look
	silent int    // looks in a row that found no more
}

// watch looks at the connection until it is closed, and gives it up after limit.
func (s *session) watch(limit time.Duration) {
	every := limit / beats
	s.pulse.timer = time.AfterFunc(time.Hour, func() {
		if s.beat() {
			s.pulse.timer.Reset(every)
		}
	})
	s.pulse.timer.Reset(every) // only now, when the field is set
}

// beat is one look. It reports whether there is to be another.
func (s *session) beat() bool {
	p := &s.pulse
	if now := s.reads.Load(); now != p.seen {
		p.seen, p.silent = now, 0
		return !s.gone.Load()
	}
	if p.silent++; p.silent < beats {
		return !s.gone.Load()
	}
	s.silent.Store(true)
	_ = s.raw.Close() // whoever reads or writes hears of it
	return false
}
