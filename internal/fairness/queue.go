package fairness

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"time"

	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
)

// estimatedService is the estimated service time of a request in seconds, as in k8s.io/apiserver.
const estimatedService = 0.003

// queue is one of a level's queues. Its virtual start is the virtual time, in seat-seconds of service per queue, at which its
// next request begins. The queue with the least service is first (start-time fair queueing).
type queue struct {
	waiters      []*waiter
	executing    int // requests from this queue that have their seats
	virtualStart float64
	work         float64 // of the waiters
}

func (q *queue) idle() bool { return len(q.waiters) == 0 && q.executing == 0 }

// boundStart prevents a queue from accumulating unused service: a request does not begin before its arrival.
func (q *queue) boundStart() {
	if len(q.waiters) > 0 {
		q.virtualStart = max(q.virtualStart, q.waiters[0].arrivedAt)
	}
}

// waiter is a request that is or was in a queue. It is guarded by the level's lock until it is seated. Waiters are reused.
type waiter struct {
	schema     string
	seats      int64
	initial    float64       // seats during its service
	work       float64       // seat-seconds
	arrivedAt  float64       // virtual time of the level at its arrival
	queueIndex int           // index of its queue
	dispatched chan struct{} // has capacity for its one result

	timer *time.Timer // nil until it is needed
}

// getWaiter returns a waiter that is not in a queue.
func (l *level) getWaiter() *waiter {
	if w, ok := l.waiters.Get().(*waiter); ok {
		return w
	}
	return &waiter{dispatched: make(chan struct{}, 1)}
}

// putWaiter returns a waiter to the pool. It must not be in a queue, and its result must have been received.
func (l *level) putWaiter(w *waiter) {
	*w = waiter{dispatched: w.dispatched, timer: w.timer}
	l.waiters.Put(w)
}

// enqueue appends w to the shortest queue in the hand of its flow, and seats as many waiters as possible. It returns the length
// of the queue, including w, before that, or 0 if the queue was full.
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
		q.virtualStart = l.virtualTime // discard an earlier surplus or deficit of service
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

// shortestQueue deals the hand of a flow and returns its queue with the least work. The order in which the hand is tried
// rotates, so that flows with overlapping hands do not all prefer the same queue.
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

// dispatch seats queued requests while there are free seats. It requires the lock.
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

// nextQueue returns the queue whose first request would finish first if all queues were served at the same time. Ties
// alternate.
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
	if now := time.Now(); now.Sub(l.gaugesUpdated) >= updateInterval { // gauges of the latest dispatch; not every one is visible
		l.gaugesUpdated = now
		underway := float64(q.executing) * estimatedService
		fcmetrics.SetDispatchMetrics(l.name, l.virtualTime, q.virtualStart, least, most, least-underway, most-underway)
	}
	return best
}

// dequeue requires the lock.
func (l *level) dequeue(at, i int) {
	q := &l.queues[at]
	q.work -= q.waiters[i].work
	q.waiters = slices.Delete(q.waiters, i, i+1) // there are few, and the space is reused
	if len(q.waiters) == 0 {
		q.work = 0
		l.occupied.clear(at)
	}
	if l.waiting--; l.waiting == 0 {
		l.state.And(^waitersBit)
	}
}

// cancel removes w from its queue. It returns false if w already has its seats.
func (l *level) cancel(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := &l.queues[w.queueIndex]
	i := slices.Index(q.waiters, w)
	if i < 0 {
		return false
	}
	l.dequeue(w.queueIndex, i)
	l.dispatch() // the next request may need fewer seats
	return true
}

// adjustService charges the queue of w for the actual service time instead of the estimate.
func (l *level) adjustService(w *waiter, seconds float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.adjust(w, seconds)
}

// adjust is adjustService. It requires the lock.
func (l *level) adjust(w *waiter, seconds float64) {
	q := &l.queues[w.queueIndex]
	q.executing--
	q.virtualStart += (seconds - estimatedService) * w.initial
	q.boundStart()
}

// finish is adjustService and then release.
func (l *level) finish(w *waiter, seconds float64, seats int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.adjust(w, seconds)
	if l.state.Add(-seats)&waitersBit != 0 {
		l.dispatch()
	}
}

// flow is a flow of a schema: its distinguisher and its number.
type flow struct {
	distinguisher string
	number        uint64
}

// flow is flowOf with a cache of one entry, because the same flow is requested repeatedly.
func (s *schema) flow(distinguisher string) uint64 {
	f := s.lastFlow.Load()
	if f == nil || f.distinguisher != distinguisher {
		f = &flow{distinguisher, flowOf(s.object.Name, distinguisher)}
		s.lastFlow.Store(f)
	}
	return f.number
}

// flowOf returns the hash of a flow. A client cannot choose it to collide with another flow's queues.
func flowOf(schema, distinguisher string) uint64 {
	sum := sha256.Sum256([]byte(schema + "\x00" + distinguisher))
	return binary.LittleEndian.Uint64(sum[:8])
}
