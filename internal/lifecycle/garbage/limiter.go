package garbage

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// A group-version is asked so many things at a time. Backends get few, so that some that hang leave workers for the
	// rest of the cluster.
	localSeats, backendSeats = workers / 2, 3
	// One that did not answer is left alone for a second, then twice as long each time up to half a minute.
	firstRest, lastRest = time.Second, 30 * time.Second
)

// turns is which group-versions may be asked now, and which objects wait until one may.
type turns struct {
	wake func(key)

	mu   sync.Mutex // guards what follows
	bays map[schema.GroupVersion]*bay
}

// bay is where objects wait for one group-version. A graph's worth of objects bounds it.
type bay struct {
	taken    int
	failures int
	rest     time.Time // nothing is asked before
	turn     map[key]struct{}
	change   map[key]struct{}
	seen     GroupVersion // what discovery said when the first of change came
}

func newTurns(wake func(key)) *turns {
	return &turns{wake: wake, bays: map[schema.GroupVersion]*bay{}}
}

// busyError: the group-version has no seat now.
type busyError struct{ gv GroupVersion }

func (e *busyError) Error() string {
	return fmt.Sprintf("%s is asked enough at the moment", e.gv.GroupVersion)
}

// unsureError: what discovery says of the group-version does not allow a judgement.
type unsureError struct {
	gv  GroupVersion
	why string
}

func (e *unsureError) Error() string { return fmt.Sprintf("%s: %s", e.gv.GroupVersion, e.why) }

func (t *turns) bay(gv schema.GroupVersion) *bay {
	b := t.bays[gv]
	if b == nil {
		b = &bay{turn: map[key]struct{}{}, change: map[key]struct{}{}}
		t.bays[gv] = b
	}
	return b
}

func (b *bay) free(gv GroupVersion, now time.Time) int {
	seats := backendSeats
	switch {
	case now.Before(b.rest):
		return 0
	case b.failures > 0:
		seats = 1 // whether it is back, one question tells
	case gv.Local:
		seats = localSeats
	}
	return max(0, seats-b.taken)
}

// enter takes a seat. leave gives it back and says whether there was an answer, of whatever kind.
func (t *turns) enter(gv GroupVersion) (leave func(answered bool), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.bay(gv.GroupVersion)
	if b.free(gv, time.Now()) == 0 {
		return nil, &busyError{gv}
	}
	b.taken++
	return func(answered bool) { t.leave(gv, answered) }, nil
}

func (t *turns) leave(gv GroupVersion, answered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, now := t.bay(gv.GroupVersion), time.Now()
	b.taken--
	switch {
	case answered:
		b.failures, b.rest = 0, time.Time{}
	case !now.Before(b.rest): // of several that fail together, one counts
		b.rest = now.Add(min(firstRest<<min(b.failures, 10), lastRest))
		b.failures++
	}
	t.admit(b, gv, now)
}

// admit wakes as many as there are seats.
func (t *turns) admit(b *bay, gv GroupVersion, now time.Time) {
	free := b.free(gv, now)
	for k := range b.turn {
		if free == 0 {
			return
		}
		delete(b.turn, k)
		t.wake(k)
		free--
	}
}

// await puts an object aside until the group-version has a seat.
func (t *turns) await(gv GroupVersion, k key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bay(gv.GroupVersion).turn[k] = struct{}{}
}

// awaitChange puts an object aside until discovery says something else of the group-version.
func (t *turns) awaitChange(gv GroupVersion, k key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.bay(gv.GroupVersion)
	if len(b.change) == 0 || !b.seen.same(gv) {
		b.seen = gv // those that came before are woken once for nothing, at most
		t.release(b)
	}
	b.change[k] = struct{}{}
}

func (t *turns) release(b *bay) {
	for k := range b.change {
		t.wake(k)
	}
	clear(b.change)
}

// review looks at who may go on: those whose group-version has changed, and those whose turn has come.
func (t *turns) review(d *Discovery) {
	if d == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for name, b := range t.bays {
		gv := d.lookup(name)
		if len(b.change) > 0 && d.Synced && !b.seen.same(gv) {
			t.release(b)
		}
		t.admit(b, gv, now)
		if b.taken == 0 && b.failures == 0 && len(b.turn) == 0 && len(b.change) == 0 {
			delete(t.bays, name)
		}
	}
}
