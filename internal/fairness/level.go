package fairness

import (
	"sync"
	"sync/atomic"
	"time"

	fq "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	"k8s.io/apiserver/pkg/util/shufflesharding"
)

// someWait is the bit of level.state that says that requests are in its queues. The seats taken are below it.
const someWait = 1 << 62

// exempt is the limit of a level whose requests never wait.
const exempt = -1

// level is the seats of one priority level, and the queues for them.
//
// A seat that is free is taken by one compare-and-swap. As soon as a request waits, someWait is set, and seats are given
// by the queues only: nobody who arrives later overtakes. Whoever gives a seat back sees, in the same atomic step,
// whether anybody waits; so a seat cannot become free between the look of the last to queue and its sleep.
type level struct {
	name  string
	state atomic.Int64          // seats taken, and someWait
	limit atomic.Int64          // exempt, or how many seats there are
	form  atomic.Pointer[form]  // how requests queue
	sight atomic.Pointer[sight] // who is told of seats

	waiters sync.Pool // of waiters that nobody is

	mu         sync.Mutex // guards the rest, and that someWait is set exactly while waiting is not 0
	queues     []queue
	occupied   bitset // the queues in which somebody waits
	waiting    int
	deals      int
	robin      int
	virtual    float64   // the virtual start of what was seated last from a queue, in seat-seconds
	dispatched time.Time // when the library's gauges were told of that
}

// form is how requests queue: not at all if there are no queues.
type form struct {
	queues, length int
	dealer         *shufflesharding.Dealer
	hand           int
}

// formOf refuses hands that cannot be dealt.
func formOf(c fq.QueuingConfig) (*form, error) {
	if c.DesiredNumQueues < 1 {
		return &form{}, nil
	}
	dealer, err := shufflesharding.NewDealer(c.DesiredNumQueues, c.HandSize)
	if err != nil {
		return nil, err
	}
	return &form{queues: c.DesiredNumQueues, length: c.QueueLengthLimit, dealer: dealer, hand: c.HandSize}, nil
}

// take takes seats if nobody waits for some and there are enough.
func (l *level) take(seats int64) bool {
	for {
		s := l.state.Load()
		if s&someWait != 0 || !l.fits(s, seats) {
			return false
		}
		if l.state.CompareAndSwap(s, s+seats) {
			return true
		}
	}
}

// seize is take for whoever is next, although others wait.
func (l *level) seize(seats int64) bool {
	for {
		s := l.state.Load()
		if !l.fits(s&^someWait, seats) {
			return false
		}
		if l.state.CompareAndSwap(s, s+seats) {
			return true
		}
	}
}

// fits reports whether seats can be had beside those taken. Who needs more than there are has them all, alone.
func (l *level) fits(taken, seats int64) bool {
	limit := l.limit.Load()
	return limit == exempt || taken+seats <= limit || taken == 0
}

// full reports whether nobody fits.
func (l *level) full() bool { return !l.fits(l.taken(), 1) }

func (l *level) taken() int64 { return l.state.Load() &^ someWait }

// giveBack makes seats free and seats whoever waits for them.
func (l *level) giveBack(seats int64) {
	if l.state.Add(-seats)&someWait == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seatThoseWhoWait()
}

// change is how the controller sets limits. Queues that are not wanted any more empty themselves.
func (l *level) change(f *form, limit int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queues) < f.queues {
		l.queues = append(l.queues, queue{})
	}
	l.occupied.grow(len(l.queues))
	for n := len(l.queues); n > f.queues && l.queues[n-1].idle(); n-- {
		l.queues = l.queues[:n-1]
	}
	l.form.Store(f)
	l.limit.Store(limit)
	l.seatThoseWhoWait()
}
