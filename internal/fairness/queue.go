package fairness

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"time"

	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
)

// estimatedService is how long a request is taken to be served until it is known, in seconds, as upstream.
const estimatedService = 0.003

// queue is one of a level's queues. Its virtual start is when, in seat-seconds that each queue had, its next request
// begins: the queue that had least goes first (start-time fair queueing).
type queue struct {
	waiters      []*waiter
	executing    int // requests from here that have their seats
	virtualStart float64
	work         float64 // of the waiters
}

func (q *queue) idle() bool { return len(q.waiters) == 0 && q.executing == 0 }

// boundStart keeps a queue from saving up service that it had no use for: no request begins before it arrived.
func (q *queue) boundStart() {
	if len(q.waiters) > 0 {
		q.virtualStart = max(q.virtualStart, q.waiters[0].arrivedAt)
	}
}

// waiter is a request in a queue, or from one. It belongs to the level's lock until it is seated, and is used again.
type waiter struct {
	schema     string
	seats      int64
	initial    float64       // seats while it is served
	work       float64       // seat-seconds
	arrivedAt  float64       // the level's, when it arrived
	queueIndex int           // its queue
	dispatched chan struct{} // has room for its one result

	timer *time.Timer // nil: not made yet
}

// getWaiter is a waiter that is in no queue.
func (l *level) getWaiter() *waiter {
	if w, ok := l.waiters.Get().(*waiter); ok {
		return w
	}
	return &waiter{dispatched: make(chan struct{}, 1)}
}

// putWaiter takes a waiter back that is in no queue, and has been told its result.
func (l *level) putWaiter(w *waiter) {
	*w = waiter{dispatched: w.dispatched, timer: w.timer}
	l.waiters.Put(w)
}

// enqueue puts w into the shortest queue of its flow's hand, seats those it can and returns how long the queue was
// then. It is 0 if the queue was full.
func (l *level) enqueue(w *waiter, flow uint64) (length int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.config.Load()
	if f.queues == 0 {
		return 0
	}
	w.queueIndex = l.shortestQueue(f, flow)
	q := &l.queues[w.queueIndex]
	if len(q.waiters) >= f.queueLength && l.full() {
		return 0
	}
	if q.idle() {
		q.virtualStart = l.virtualTime // what it had too much or too little of before is forgotten
	}
	w.arrivedAt = l.virtualTime
	q.waiters, q.work = append(q.waiters, w), q.work+w.work
	q.boundStart()
	l.occupied.set(w.queueIndex)
	l.waiting++
	length = len(q.waiters)
	l.state.Or(waitersBit)
	l.dispatch()
	return length
}

// shortestQueue deals the hand of a flow. The order in which the hand is tried rotates, so that flows whose hands
// overlap do not share the first card.
func (l *level) shortestQueue(f *queueConfig, flow uint64) int {
	var backing [16]int
	hand := f.dealer.DealIntoHand(flow, backing[:])
	best, least := 0, math.Inf(1)
	for i := range hand {
		at := hand[(i+l.nextDeal)%len(hand)]
		if work := l.queues[at].work; work < least {
			best, least = at, work
		}
	}
	l.nextDeal = (l.nextDeal + 1) % math.MaxInt32
	return best
}

// dispatch seats requests from the queues while there are seats. It needs the lock.
func (l *level) dispatch() {
	for l.waiting > 0 && !l.full() {
		at := l.nextQueue()
		q := &l.queues[at]
		w := q.waiters[0]
		if !l.takeAhead(w.seats) {
			fcmetrics.AddDispatchWithNoAccommodation(l.name, w.schema)
			return
		}
		l.lastQueue = at
		l.virtualTime = max(l.virtualTime, q.virtualStart)
		l.dequeue(at, 0)
		q.executing++
		q.virtualStart += w.work
		q.boundStart()
		w.dispatched <- struct{}{}
	}
}

// nextQueue is the queue whose first request would have been served first, had all queues been served at once. Equal
// ones alternate.
func (l *level) nextQueue() int {
	best, first := -1, math.Inf(1)
	least, most := math.Inf(1), math.Inf(-1)
	for at := range l.occupied.from(l.lastQueue + 1) {
		q := &l.queues[at]
		least, most = min(least, q.virtualStart), max(most, q.virtualStart)
		if finish := q.virtualStart + q.waiters[0].work; finish < first {
			best, first = at, finish
		}
	}
	q := &l.queues[best]
	if now := time.Now(); now.Sub(l.gaugesUpdated) >= updateInterval { // gauges of the latest dispatch: not each is seen
		l.gaugesUpdated = now
		underway := float64(q.executing) * estimatedService
		fcmetrics.SetDispatchMetrics(l.name, l.virtualTime, q.virtualStart, least, most, least-underway, most-underway)
	}
	return best
}

// dequeue needs the lock.
func (l *level) dequeue(at, i int) {
	q := &l.queues[at]
	q.work -= q.waiters[i].work
	q.waiters = slices.Delete(q.waiters, i, i+1) // they are few, and the room is used again
	if len(q.waiters) == 0 {
		q.work = 0
		l.occupied.clear(at)
	}
	if l.waiting--; l.waiting == 0 {
		l.state.And(^waitersBit)
	}
}

// cancel takes w out of its queue. It reports false if w has its seats already.
func (l *level) cancel(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := &l.queues[w.queueIndex]
	i := slices.Index(q.waiters, w)
	if i < 0 {
		return false
	}
	l.dequeue(w.queueIndex, i)
	l.dispatch() // who comes next may need fewer seats
	return true
}

// adjustService charges the queue of w for the seconds that it took instead of the estimate.
func (l *level) adjustService(w *waiter, seconds float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := &l.queues[w.queueIndex]
	q.executing--
	q.virtualStart += (seconds - estimatedService) * w.initial
	q.boundStart()
}

// flow is one of a schema's flows: what distinguishes it, and its number.
type flow struct {
	distinguisher string
	number        uint64
}

// flow is flowOf, which is asked for the same flow again and again.
func (s *schema) flow(distinguisher string) uint64 {
	f := s.lastFlow.Load()
	if f == nil || f.distinguisher != distinguisher {
		f = &flow{distinguisher, flowOf(s.object.Name, distinguisher)}
		s.lastFlow.Store(f)
	}
	return f.number
}

// flowOf is the same for all requests of a flow, and nothing that a client can choose to meet another's queues.
func flowOf(schema, distinguisher string) uint64 {
	sum := sha256.Sum256([]byte(schema + "\x00" + distinguisher))
	return binary.LittleEndian.Uint64(sum[:8])
}
