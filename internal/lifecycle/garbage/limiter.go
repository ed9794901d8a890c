package garbage

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// localLimit and backendLimit bound the concurrent requests to one group-version. The limit for backends is low, so that a
	// few hanging backends leave workers for the rest of the cluster.
	localLimit, backendLimit = workers / 2, 3
	// A group-version that did not respond gets no requests for minPause. The pause doubles with each failure, up to maxPause.
	minPause, maxPause = time.Second, 5 * time.Second
)

// limiter limits the requests to each group-version, and holds the objects that wait for one.
type limiter struct {
	enqueue func(key)

	mu     sync.Mutex // guards the fields below
	queues map[queueID]*versionQueue
}

// queueID identifies a group-version at one location. Hidden objects do not wait for the extension server that hides them.
type queueID struct {
	schema.GroupVersion
	hidden bool
}

// versionQueue contains the objects that wait for one group-version. The graph bounds their number.
type versionQueue struct {
	inFlight       int
	failures       int
	retryAfter     time.Time // no requests before this time
	waiting        map[key]struct{}
	awaitingChange map[key]struct{}
	seen           GroupVersion // the group-version when the first object of awaitingChange was added
}

func newLimiter(enqueue func(key)) *limiter {
	return &limiter{enqueue: enqueue, queues: map[queueID]*versionQueue{}}
}

// busyError reports that the group-version is at its limit.
type busyError struct{ gv GroupVersion }

func (e *busyError) Error() string {
	return fmt.Sprintf("%s is asked enough at the moment", e.gv.GroupVersion)
}

// undecidedError reports that discovery does not show enough about the group-version.
type undecidedError struct {
	gv     GroupVersion
	reason string
}

func (e *undecidedError) Error() string { return fmt.Sprintf("%s: %s", e.gv.GroupVersion, e.reason) }

func (t *limiter) queue(gv GroupVersion) *versionQueue {
	id := queueID{gv.GroupVersion, gv.Hidden}
	b := t.queues[id]
	if b == nil {
		b = &versionQueue{waiting: map[key]struct{}{}, awaitingChange: map[key]struct{}{}}
		t.queues[id] = b
	}
	return b
}

func (b *versionQueue) free(gv GroupVersion, now time.Time) int {
	limit := backendLimit
	switch {
	case now.Before(b.retryAfter):
		return 0
	case b.failures > 0:
		limit = 1 // a single request checks whether the group-version is back
	case gv.Local:
		limit = localLimit
	}
	return max(0, limit-b.inFlight)
}

// acquire counts a request. The caller ends it with done, and reports whether there was a response of any kind.
func (t *limiter) acquire(gv GroupVersion) (done func(answered bool), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.queue(gv)
	if b.free(gv, time.Now()) == 0 {
		return nil, &busyError{gv}
	}
	b.inFlight++
	return func(answered bool) { t.release(gv, answered) }, nil
}

func (t *limiter) release(gv GroupVersion, answered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, now := t.queue(gv), time.Now()
	b.inFlight--
	switch {
	case answered:
		b.failures, b.retryAfter = 0, time.Time{}
	case !now.Before(b.retryAfter): // concurrent failures count as one
		b.retryAfter = now.Add(min(minPause<<min(b.failures, 10), maxPause))
		b.failures++
	}
	t.enqueueWaiting(b, gv, now)
}

// enqueueWaiting queues as many waiting objects as the limit allows.
func (t *limiter) enqueueWaiting(b *versionQueue, gv GroupVersion, now time.Time) {
	free := b.free(gv, now)
	for k := range b.waiting {
		if free == 0 {
			return
		}
		delete(b.waiting, k)
		t.enqueue(k)
		free--
	}
}

// wait holds an object until the group-version is below its limit.
func (t *limiter) wait(gv GroupVersion, k key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue(gv).waiting[k] = struct{}{}
}

// waitForChange holds an object until the group-version changes in discovery.
func (t *limiter) waitForChange(gv GroupVersion, k key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.queue(gv)
	if len(b.awaitingChange) == 0 || !b.seen.equal(gv) {
		b.seen = gv // objects added before are queued again
		t.enqueueChanged(b)
	}
	b.awaitingChange[k] = struct{}{}
}

func (t *limiter) enqueueChanged(b *versionQueue) {
	for k := range b.awaitingChange {
		t.enqueue(k)
	}
	clear(b.awaitingChange)
}

// enqueueReady queues the objects of each group-version that has changed or is below its limit.
func (t *limiter) enqueueReady(d *Discovery) {
	if d == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for id, b := range t.queues {
		gv := d.find(id.GroupVersion, id.hidden)
		if len(b.awaitingChange) > 0 && d.Synced && !b.seen.equal(gv) {
			t.enqueueChanged(b)
		}
		t.enqueueWaiting(b, gv, now)
		if b.inFlight == 0 && b.failures == 0 && len(b.waiting) == 0 && len(b.awaitingChange) == 0 {
			delete(t.queues, id)
		}
	}
}
