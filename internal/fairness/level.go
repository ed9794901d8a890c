package fairness

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/util/flowcontrol/debug"
	fq "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/apiserver/pkg/util/shufflesharding"
)

// waitersBit is the bit of level.state that is set while requests are queued. The lower bits contain the number of seats taken.
const waitersBit = 1 << 62

// exempt is the limit of a level without waiting requests.
const exempt = -1

// level contains the seats of one priority level, and the queues for them.
//
// A free seat is taken with one compare-and-swap. As soon as a request waits, waitersBit is set, and seats are given to queued
// requests only, so that later requests cannot overtake. The release of a seat detects waiting requests in the same atomic
// step. Therefore a seat cannot become free between the last check of a queueing request and its sleep.
type level struct {
	name   string
	state  atomic.Int64                 // seats taken, and waitersBit
	limit  atomic.Int64                 // exempt, or the number of seats
	config atomic.Pointer[queueConfig]  // queue parameters
	gauges atomic.Pointer[gaugeUpdater] // k8s.io/apiserver's gauges

	waiters sync.Pool // of waiters that are not in a queue

	mu            sync.Mutex // guards the fields below, and ensures that waitersBit is set exactly while waiting is not 0
	queues        []queue
	occupied      bitset // the queues with waiting requests
	waiting       int
	nextDeal      int
	lastQueue     int
	virtualTime   float64   // virtual start, in seat-seconds, of the last request seated from a queue
	gaugesUpdated time.Time // when k8s.io/apiserver's gauges were updated
}

// queueConfig contains the queue parameters. Without queues, requests are not queued.
type queueConfig struct {
	queues, queueLength int
	dealer              *shufflesharding.Dealer
	handSize            int
}

// newQueueConfig returns an error if the hand size is invalid.
func newQueueConfig(c fq.QueuingConfig) (*queueConfig, error) {
	if c.DesiredNumQueues < 1 {
		return &queueConfig{}, nil
	}
	dealer, err := shufflesharding.NewDealer(c.DesiredNumQueues, c.HandSize)
	if err != nil {
		return nil, err
	}
	return &queueConfig{queues: c.DesiredNumQueues, queueLength: c.QueueLengthLimit, dealer: dealer, handSize: c.HandSize}, nil
}

// tryTake takes seats if they are free and no requests are waiting.
func (l *level) tryTake(seats int64) bool {
	for {
		s := l.state.Load()
		if s&waitersBit != 0 || !l.fits(s, seats) {
			return false
		}
		if l.state.CompareAndSwap(s, s+seats) {
			return true
		}
	}
}

// takeAhead is tryTake for the next request in order. It ignores other waiting requests.
func (l *level) takeAhead(seats int64) bool {
	for {
		s := l.state.Load()
		if !l.fits(s&^waitersBit, seats) {
			return false
		}
		if l.state.CompareAndSwap(s, s+seats) {
			return true
		}
	}
}

// fits reports whether seats are free in addition to the seats taken. A request that needs more seats than the limit runs
// alone.
func (l *level) fits(taken, seats int64) bool {
	limit := l.limit.Load()
	return limit == exempt || taken+seats <= limit || taken == 0
}

// full reports whether all seats are taken.
func (l *level) full() bool { return !l.fits(l.seatsTaken(), 1) }

func (l *level) seatsTaken() int64 { return l.state.Load() &^ waitersBit }

// release frees seats and gives them to waiting requests.
func (l *level) release(seats int64) {
	if l.state.Add(-seats)&waitersBit == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dispatch()
}

// configure sets the limits on behalf of the controller. Surplus queues are removed after they are empty.
func (l *level) configure(f *queueConfig, limit int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queues) < f.queues {
		l.queues = append(l.queues, queue{})
	}
	l.occupied.grow(len(l.queues))
	for n := len(l.queues); n > f.queues && l.queues[n-1].idle(); n-- {
		l.queues = l.queues[:n-1]
	}
	l.config.Store(f)
	l.limit.Store(limit)
	l.dispatch()
}

// BeginConstruction implements fq.QueueSetFactory. k8s.io/apiserver's controller creates levels with it.
func (k *classifier) BeginConstruction(c fq.QueuingConfig, requests fcmetrics.RatioedGaugePair, seats fcmetrics.RatioedGauge, demand fcmetrics.Gauge) (fq.QueueSetCompleter, error) {
	form, err := newQueueConfig(c)
	if err != nil {
		return nil, fmt.Errorf("queues of level %s: %w", c.Name, err)
	}
	return &completer{classifier: k, config: c, queues: form, gauges: newGaugeUpdater(libraryGauges{requests: requests, seats: seats, demand: demand})}, nil
}

// completer creates or changes a level when its limit is known.
type completer struct {
	classifier *classifier
	level      *level // nil for a new level
	config     fq.QueuingConfig
	queues     *queueConfig
	gauges     *gaugeUpdater // nil if unchanged
}

// Complete implements fq.QueueSetCompleter.
func (c *completer) Complete(d fq.DispatchingConfig) fq.QueueSet {
	l := c.classifier.levelNamed(c.config.Name, c.level)
	if c.gauges != nil {
		l.gauges.Store(c.gauges)
	}
	limit := int64(d.ConcurrencyLimit)
	if c.config.DesiredNumQueues < 0 {
		limit = exempt
	}
	l.configure(c.queues, limit)
	seen := &l.gauges.Load().gauges
	seen.requests.RequestsWaiting.SetDenominator(float64(max(1, c.queues.queues) * max(1, c.queues.queueLength)))
	seen.requests.RequestsExecuting.SetDenominator(float64(d.ConcurrencyDenominator))
	seen.seats.SetDenominator(float64(d.ConcurrencyDenominator))
	c.classifier.register(l)
	return &queueSet{classifier: c.classifier, level: l}
}

// queueSet adapts a level for k8s.io/apiserver's controller.
type queueSet struct {
	classifier *classifier
	level      *level
}

// BeginConfigChange implements fq.QueueSet.
func (q *queueSet) BeginConfigChange(c fq.QueuingConfig) (fq.QueueSetCompleter, error) {
	form, err := newQueueConfig(c)
	if err != nil {
		return nil, fmt.Errorf("queues of level %s: %w", c.Name, err)
	}
	return &completer{classifier: q.classifier, level: q.level, config: c, queues: form}, nil
}

// IsIdle implements fq.QueueSet. It reports whether a level with a deleted object may be dropped, which is always possible. Its
// requests keep their seats, or wait for the seats of the dropped level. A new level of the same name reuses it.
func (q *queueSet) IsIdle() bool { return true }

// StartRequest implements fq.QueueSet. It is not used, because requests call [Fairness.Reserve].
func (q *queueSet) StartRequest(context.Context, *fcrequest.WorkEstimate, uint64, string, string, any, any, fq.QueueNoteFn) (fq.Request, bool) {
	return nil, true
}

// Dump implements fq.QueueSet.
func (q *queueSet) Dump(bool) debug.QueueSetDump {
	l := q.level
	l.mu.Lock()
	defer l.mu.Unlock()
	return debug.QueueSetDump{Waiting: l.waiting, SeatsInUse: int(l.seatsTaken())}
}
