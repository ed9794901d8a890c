package fairness

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"time"

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

// waiter is a request in a queue, or from one. It belongs to the level's lock until it is seated, and is used again.
type waiter struct {
	schema  string
	seats   int64
	initial float64       // seats while it is served
	work    float64       // seat-seconds
	virtual float64       // the level's, when it arrived
	at      int           // its queue
	seated  chan struct{} // has room for the one word that it gets

	patience *time.Timer // nil: not made yet
}

// waiter is one that is in no queue.
func (l *level) waiter() *waiter {
	if w, ok := l.waiters.Get().(*waiter); ok {
		return w
	}
	return &waiter{seated: make(chan struct{}, 1)}
}

// dismiss takes a waiter back that is in no queue, and has heard what there was to hear.
func (l *level) dismiss(w *waiter) {
	*w = waiter{seated: w.seated, patience: w.patience}
	l.waiters.Put(w)
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
	l.occupied.set(w.at)
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
		l.drop(at, 0)
		q.seated++
		q.start += w.work
		q.bound()
		w.seated <- struct{}{}
	}
}

// next is the queue whose first request would have been served first, had all queues been served at once. Those that
// are equal take turns.
func (l *level) next() int {
	best, first := -1, math.Inf(1)
	least, most := math.Inf(1), math.Inf(-1)
	for at := range l.occupied.from(l.robin + 1) {
		q := &l.queues[at]
		least, most = min(least, q.start), max(most, q.start)
		if finish := q.start + q.waiters[0].work; finish < first {
			best, first = at, finish
		}
	}
	q := &l.queues[best]
	if now := time.Now(); now.Sub(l.dispatched) >= tellEvery { // gauges of the latest dispatch: nobody sees each
		l.dispatched = now
		underway := float64(q.seated) * guess
		fcmetrics.SetDispatchMetrics(l.name, l.virtual, q.start, least, most, least-underway, most-underway)
	}
	return best
}

// drop needs the lock.
func (l *level) drop(at, i int) {
	q := &l.queues[at]
	q.work -= q.waiters[i].work
	q.waiters = slices.Delete(q.waiters, i, i+1) // they are few, and the room is used again
	if len(q.waiters) == 0 {
		q.work = 0
		l.occupied.clear(at)
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
	l.drop(w.at, i)
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

// flow is one of a schema's flows: what it is told apart by, and its number.
type flow struct {
	distinguisher string
	number        uint64
}

// flow is flowOf, which is asked for the same flow again and again.
func (s *schema) flow(distinguisher string) uint64 {
	f := s.latest.Load()
	if f == nil || f.distinguisher != distinguisher {
		f = &flow{distinguisher, flowOf(s.object.Name, distinguisher)}
		s.latest.Store(f)
	}
	return f.number
}

// flowOf is the same for all requests of a flow, and nothing that a client can choose to meet another's queues.
func flowOf(schema, distinguisher string) uint64 {
	sum := sha256.Sum256([]byte(schema + "\x00" + distinguisher))
	return binary.LittleEndian.Uint64(sum[:8])
}
