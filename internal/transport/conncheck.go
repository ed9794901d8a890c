package transport

import (
	"sync"
	"time"
)

// rounds goes round the lanes of a Set that have connections, and has each looked at every so often. One timer for all:
// with a thousand backends, timers of their own would be a fifth of what an idle process costs.
type rounds struct {
	every time.Duration // between two looks at the same lane

	turning sync.Mutex // held while a turn is under way

	mu    sync.Mutex // guards what follows
	stops [stops][]*lane
	at    int // the stop of the last turn
	next  int // where the next newcomer is put
	count int
	timer *time.Timer // nil: nobody is to be looked at
	ended bool
}

// stops is among how many turns the lanes are divided, so that they do not all send pings at once.
const stops = 5

// looks is how many looks there are in the time in which a silent connection is given up.
const looks = 6

// calmLooks is how many looks there are to a ping of an endpoint to which clients have no connection, because nobody has
// asked it anything for IdleTimeout. Nobody waits for what that ping finds, and with a thousand backends most are like that:
// pings as often as of the others would be half of what an idle process costs.
const calmLooks = 6

// pings reports whether connections without requests may be pinged at this look. It is for the rounds.
func (l *lane) pings() bool {
	if l.asleep != nil && l.asleep() {
		return false
	}
	l.turn++
	return l.turn%calmLooks == 0 || l.calm == nil || !l.calm()
}

// lookEvery is the time between two looks at a connection.
func (o *Options) lookEvery() time.Duration {
	return min((o.PingAfter+o.PingTimeout)/looks, o.HeaderTimeout/4)
}

// add has l looked at until its look says that there is nothing left to look at.
func (r *rounds) add(l *lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.next = (r.next + 1) % stops
	r.stops[r.next] = append(r.stops[r.next], l)
	r.count++
	switch {
	case r.timer == nil:
		r.timer = time.AfterFunc(r.every/stops, r.turn)
	case r.count == 1:
		r.timer.Reset(r.every / stops)
	}
}

// turn looks at the lanes of one stop. The next turn begins its time when this one is over: a process that did not get
// to run does not catch up.
func (r *rounds) turn() {
	r.turning.Lock()
	defer r.turning.Unlock()
	r.mu.Lock()
	r.at = (r.at + 1) % stops
	at := r.at
	lanes := r.stops[at]
	r.stops[at] = nil
	r.mu.Unlock()
	now, kept := time.Now(), lanes[:0]
	for _, l := range lanes {
		if l.look(now) {
			kept = append(kept, l)
		}
	}
	clear(lanes[len(kept):])
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count -= len(lanes) - len(kept)
	r.stops[at] = append(kept, r.stops[at]...)
	if r.count > 0 && !r.ended {
		r.timer.Reset(r.every / stops)
	}
}

// close ends the rounds, and waits for the turn under way.
func (r *rounds) close() {
	r.mu.Lock()
	r.ended = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	r.turning.Lock() // to wait is all
	defer r.turning.Unlock()
}
