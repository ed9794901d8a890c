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

// waitersBit is the bit of level.state that says that requests are in its queues. The seats taken are below it.
const waitersBit = 1 << 62

// exempt is the limit of a level whose requests never wait.
const exempt = -1

// level is the seats of one priority level, and the queues for them.
//
// A seat that is free is taken by one compare-and-swap. As soon as a request waits, waitersBit is set, and seats are
// given to queued requests only: no later request overtakes. Releasing a seat sees, in the same atomic step, whether
// requests wait; so a seat cannot become free between the last check of a request that queues and its sleep.
type level struct {
	name   string
	state  atomic.Int64                 // seats taken, and waitersBit
	limit  atomic.Int64                 // exempt, or how many seats there are
	config atomic.Pointer[queueConfig]  // how requests queue
	gauges atomic.Pointer[gaugeUpdater] // the library's gauges of it

	waiters sync.Pool // of waiters that are in no queue

	mu            sync.Mutex // guards the rest, and that waitersBit is set exactly while waiting is not 0
	queues        []queue
	occupied      bitset // the queues with waiting requests
	waiting       int
	nextDeal      int
	lastQueue     int
	virtualTime   float64   // the virtual start of what was seated last from a queue, in seat-seconds
	gaugesUpdated time.Time // when the library's gauges were updated
}

// queueConfig is how requests queue: not at all if there are no queues.
type queueConfig struct {
	queues, queueLength int
	dealer              *shufflesharding.Dealer
	handSize            int
}

// newQueueConfig refuses hands that cannot be dealt.
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

// tryTake takes seats if no request waits for some and there are enough.
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

// takeAhead is tryTake for the request that is next, although others wait.
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

// fits reports whether seats can be had beside those taken. A request that needs more than there are gets them all,
// alone.
func (l *level) fits(taken, seats int64) bool {
	limit := l.limit.Load()
	return limit == exempt || taken+seats <= limit || taken == 0
}

// full reports whether not one more seat can be had.
func (l *level) full() bool { return !l.fits(l.seatsTaken(), 1) }

func (l *level) seatsTaken() int64 { return l.state.Load() &^ waitersBit }

// release makes seats free and gives them to requests that wait for them.
func (l *level) release(seats int64) {
	if l.state.Add(-seats)&waitersBit == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dispatch()
}

// configure is how the controller sets limits. Queues that are not wanted any more empty themselves.
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

// BeginConstruction implements fq.QueueSetFactory: it is how the library's controller makes a level.
func (k *classifier) BeginConstruction(c fq.QueuingConfig, requests fcmetrics.RatioedGaugePair, seats fcmetrics.RatioedGauge, demand fcmetrics.Gauge) (fq.QueueSetCompleter, error) {
	form, err := newQueueConfig(c)
	if err != nil {
		return nil, fmt.Errorf("queues of level %s: %w", c.Name, err)
	}
	return &completer{classifier: k, config: c, queues: form, gauges: newGaugeUpdater(libraryGauges{requests: requests, seats: seats, demand: demand})}, nil
}

// completer is a level that is made or changed when its limit is known.
type completer struct {
	classifier *classifier
	level      *level // nil: it is to be made
	config     fq.QueuingConfig
	queues     *queueConfig
	gauges     *gaugeUpdater // nil: as it is
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

// queueSet is a level as the library's controller sees it.
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

// IsIdle implements fq.QueueSet: the library asks whether a level whose object is deleted may be forgotten. It may at
// once. Its requests keep their seats, and wait for those that there were; a level of the same name takes it up again.
func (q *queueSet) IsIdle() bool { return true }

// StartRequest implements fq.QueueSet. Requests come by [Fairness.Reserve]; the library is not asked about any.
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
