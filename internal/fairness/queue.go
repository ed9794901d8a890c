package fairness

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"

	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
)

// guess is how long a request is taken to be served until it is known, in seconds, as upstream.
const guess = 0.003

// queue is one of a level's queues. Its virtual start is when, in seat-seconds that each queue had, the next request of
// it begins: the queue that had least goes first (start-time fair queueing).
type queue struct {
	waiters []*waiter
	seated  int // requests from here that have their seats
	start   float64
	work    float64 // of the waiters
}

func (q *queue) idle() bool { return len(q.waiters) == 0 && q.seated == 0 }

// bound keeps a queue from saving up turns that it had no use for: nothing begins before it arrived.
func (q *queue) bound() {
	if len(q.waiters) > 0 {
		q.start = max(q.start, q.waiters[0].virtual)
	}
}

// waiter is a request in a queue, or from one. It belongs to the level's lock until seated is closed.
type waiter struct {
	schema  string
	seats   int64
	initial float64 // seats while it is served
	work    float64 // seat-seconds
	virtual float64 // the level's, when it arrived
	at      int     // its queue
	seated  chan struct{}
}

// line puts w into the shortest queue of its flow's hand, seats whom it can and returns how long the queue was then. It
// is 0 if the queue was full.
func (l *level) line(w *waiter, flow uint64) (length int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.form.Load()
	if f.queues == 0 {
		return 0
	}
	w.at = l.shortest(f, flow)
	q := &l.queues[w.at]
	if len(q.waiters) >= f.length && l.full() {
		return 0
	}
	if q.idle() {
		q.start = l.virtual // what it had too much or too little of before is forgotten
	}
	w.virtual = l.virtual
	q.waiters, q.work = append(q.waiters, w), q.work+w.work
	q.bound()
	l.waiting++
	length = len(q.waiters)
	l.state.Or(someWait)
	l.seatThoseWhoWait()
	return length
}

// shortest deals the hand of a flow. The order in which it is looked at turns, so that flows whose hands overlap do not
// share the first card.
func (l *level) shortest(f *form, flow uint64) int {
	var backing [16]int
	hand := f.dealer.DealIntoHand(flow, backing[:])
	best, least := 0, math.Inf(1)
	for i := range hand {
		at := hand[(i+l.deals)%len(hand)]
		if work := l.queues[at].work; work < least {
			best, least = at, work
		}
	}
	l.deals = (l.deals + 1) % math.MaxInt32
	return best
}

// seatThoseWhoWait needs the lock.
func (l *level) seatThoseWhoWait() {
	for l.waiting > 0 && !l.full() {
		at := l.next()
		q := &l.queues[at]
		w := q.waiters[0]
		if !l.seize(w.seats) {
			fcmetrics.AddDispatchWithNoAccommodation(l.name, w.schema)
			return
		}
		l.robin = at
		l.virtual = max(l.virtual, q.start)
		l.drop(q, 0)
		q.seated++
		q.start += w.work
		q.bound()
		close(w.seated)
	}
}

// next is the queue whose first request would have been served first, had all queues been served at once. Those that
// are equal take turns.
func (l *level) next() int {
	best, first := -1, math.Inf(1)
	least, most := math.Inf(1), math.Inf(-1)
	for i := range l.queues {
		at := (l.robin + 1 + i) % len(l.queues)
		q := &l.queues[at]
		if len(q.waiters) == 0 {
			continue
		}
		least, most = min(least, q.start), max(most, q.start)
		if finish := q.start + q.waiters[0].work; finish < first {
			best, first = at, finish
		}
	}
	q := &l.queues[best]
	underway := float64(q.seated) * guess
	fcmetrics.SetDispatchMetrics(l.name, l.virtual, q.start, least, most, least-underway, most-underway)
	return best
}

// drop needs the lock.
func (l *level) drop(q *queue, i int) {
	q.work -= q.waiters[i].work
	if i == 0 {
		q.waiters[0] = nil
		q.waiters = q.waiters[1:]
	} else {
		q.waiters = slices.Delete(q.waiters, i, i+1)
	}
	if len(q.waiters) == 0 {
		q.waiters, q.work = nil, 0
	}
	if l.waiting--; l.waiting == 0 {
		l.state.And(^someWait)
	}
}

// abandon takes w out of its queue. It reports false if w has its seats already.
func (l *level) abandon(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := &l.queues[w.at]
	i := slices.Index(q.waiters, w)
	if i < 0 {
		return false
	}
	l.drop(q, i)
	l.seatThoseWhoWait() // who comes next may need fewer seats
	return true
}

// served charges the queue of w for the seconds that it took instead of the guess.
func (l *level) served(w *waiter, seconds float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := &l.queues[w.at]
	q.seated--
	q.start += (seconds - guess) * w.initial
	q.bound()
}

// flowOf is the same for all requests of a flow, and nothing that a client can choose to meet another's queues.
func flowOf(schema, distinguisher string) uint64 {
	sum := sha256.Sum256([]byte(schema + "\x00" + distinguisher))
	return binary.LittleEndian.Uint64(sum[:8])
}
