package proxy

import (
	"sync"
	"time"
)

// vigil is the leashes that nothing watches over yet. Most requests are answered within a few milliseconds, and a timer
// and a place among those who wait for the client's end cost more than the proxy's own part of such a request. So a leash
// gets them when it is first looked at, or when somebody waits for its end. Until then a client that leaves is noticed at
// the next look.
type vigil struct {
	mu      sync.Mutex // guards what follows, and the neighbours of each leash
	first   *leash
	timer   *time.Timer
	looking bool // timer is set
}

// vigilLook is the time between two looks, while there are requests.
const vigilLook = 200 * time.Millisecond

func (v *vigil) add(l *leash) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l.listed, l.next = true, v.first
	if l.next != nil {
		l.next.previous = l
	}
	v.first = l
	if v.looking {
		return
	}
	v.looking = true
	if v.timer == nil {
		v.timer = time.AfterFunc(vigilLook, v.look)
	} else {
		v.timer.Reset(vigilLook)
	}
}

func (v *vigil) remove(l *leash) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !l.listed {
		return
	}
	if l.previous != nil {
		l.previous.next = l.next
	} else {
		v.first = l.next
	}
	if l.next != nil {
		l.next.previous = l.previous
	}
	l.listed, l.next, l.previous = false, nil, nil
}

// look lets every leash watch for itself.
func (v *vigil) look() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for l := v.first; l != nil; {
		next := l.next
		l.listed, l.next, l.previous = false, nil, nil
		l.watch()
		l = next
	}
	v.first, v.looking = nil, false
}
