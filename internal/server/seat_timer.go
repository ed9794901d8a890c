package server

import (
	"sync"
	"time"
)

// keeper lets requests that were handed to a backend keep their place for a while. All may keep it equally long, so that
// they leave in the order in which they came, and one timer is enough: one for each request costs more than the rest of
// handing it over.
type keeper struct {
	after time.Duration

	mu          sync.Mutex // guards what follows, and kept
	first, last *kept
	timer       *time.Timer
	waiting     bool // for the timer
}

// kept is a place that a keeper looks after.
type kept struct {
	place          place // nil: nobody's
	until          time.Time
	previous, next *kept
}

// keep has the place left after a while.
func (q *keeper) keep(k *kept, p place) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	k.place, k.until, k.previous = p, now.Add(q.after), q.last
	if q.last != nil {
		q.last.next = k
	} else {
		q.first = k
	}
	q.last = k
	if !q.waiting {
		q.wait(q.after)
	}
}

// wait is called with mu held.
func (q *keeper) wait(d time.Duration) {
	q.waiting = true
	if q.timer == nil {
		q.timer = time.AfterFunc(d, q.look)
	} else {
		q.timer.Reset(d)
	}
}

// forget takes a place back, if the request still has it.
func (q *keeper) forget(k *kept) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if k.place != nil {
		q.drop(k)
	}
}

// drop is called with mu held.
func (q *keeper) drop(k *kept) {
	if k.previous != nil {
		k.previous.next = k.next
	} else {
		q.first = k.next
	}
	if k.next != nil {
		k.next.previous = k.previous
	} else {
		q.last = k.previous
	}
	*k = kept{}
}

// look has those leave whose time has come.
func (q *keeper) look() {
	now := time.Now()
	var leaving []place
	q.mu.Lock()
	for k := q.first; k != nil && !now.Before(k.until); k = q.first {
		leaving = append(leaving, k.place)
		q.drop(k)
	}
	if q.waiting = q.first != nil; q.waiting {
		q.wait(q.first.until.Sub(now))
	}
	q.mu.Unlock()
	for _, p := range leaving {
		p.Leave()
	}
}
