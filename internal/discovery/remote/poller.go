package remote

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"portico.dev/internal/run"
)

const (
	// Interval is the pause after a poll that found something new: upstream's pause after any.
	Interval = 60 * time.Second
	// MaxInterval is the longest pause after polls that found nothing new, and so the greatest age of a document whose
	// change nothing announced (see transport.Events). The pause doubles up to it: what changed lately may change again.
	MaxInterval = 5 * time.Minute

	// A poll that failed is repeated after firstRetry, then after twice as long each time up to maxRetry.
	firstRetry = 500 * time.Millisecond
	maxRetry   = 5 * time.Second
	// pollNowGap bounds the requests to a backend whose verdict flaps.
	pollNowGap = 500 * time.Millisecond
)

// ErrUnconfirmed is returned by a Poll whose answer is not believed yet. The next poll comes sooner then, as after a
// failure, but the poll does not count as failed.
var ErrUnconfirmed = errors.New("the backend leaves out what it served before")

// Poll asks one backend for everything that is wanted from it. changed reports that something is not as it was the time
// before. An error makes the next poll come sooner: after 0.5 s, then twice as long each time, up to 5 s. A Poll
// must return when ctx ends, and is never called concurrently.
type Poll func(ctx context.Context) (changed bool, err error)

// poller polls backends, each on a schedule of its own, so that a backend that hangs delays only itself. Between its
// polls a backend costs a place in the timer queue.
type poller struct {
	newPoll func(b Backend) Poll
	timers  *run.TimerQueue

	mu       sync.Mutex // protects backends
	backends map[Backend]*polledBackend
}

// polledBackend is one backend's schedule.
type polledBackend struct {
	poll  Poll
	timer *run.ScheduledTask

	// failures and unchanged count polls in a row that failed, or found nothing new. Only the timer's callback uses them.
	failures, unchanged int

	mu sync.Mutex // protects what follows
	// resetFailures and resetUnchanged set the counts back when the next poll begins.
	resetFailures, resetUnchanged bool
}

// newPoller returns a poller without backends. newPoll returns the Poll of one backend, which may keep state from one
// poll to the next.
func newPoller(newPoll func(b Backend) Poll) *poller {
	return &poller{newPoll: newPoll, timers: run.NewTimerQueue(), backends: map[Backend]*polledBackend{}}
}

// run polls until ctx ends, and returns when no poll is under way any more.
func (p *poller) run(ctx context.Context) { p.timers.Run(ctx) }

// keep starts to poll each backend that is new, at once, and stops polling those that are gone.
func (p *poller) keep(backends []Backend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := make(map[Backend]bool, len(backends))
	for _, b := range backends {
		keep[b] = true
		if p.backends[b] == nil {
			pb := &polledBackend{poll: p.newPoll(b)}
			pb.timer = p.timers.Add(pb.run)
			p.backends[b] = pb
		}
	}
	for b, pb := range p.backends {
		if !keep[b] {
			pb.timer.Remove()
			delete(p.backends, b)
		}
	}
}

// pollNow polls a backend at once, and afterwards as if it were new.
func (p *poller) pollNow(b Backend) { p.advance(b, true, pollNowGap) }

// pollSoon polls a backend as soon as Interval has passed since the last poll. So a backend that never answers the same
// twice is polled no more often than once in Interval.
func (p *poller) pollSoon(b Backend) { p.advance(b, false, Interval) }

func (p *poller) advance(b Backend, resetFailures bool, gap time.Duration) {
	p.mu.Lock()
	pb := p.backends[b]
	p.mu.Unlock()
	if pb == nil {
		return
	}
	pb.mu.Lock()
	pb.resetFailures, pb.resetUnchanged = pb.resetFailures || resetFailures, true
	pb.mu.Unlock()
	pb.timer.RunWithin(gap)
}

// run polls once and returns the pause before the next poll.
func (pb *polledBackend) run(ctx context.Context) time.Duration {
	pb.mu.Lock()
	if pb.resetFailures {
		pb.failures = 0
	}
	if pb.resetUnchanged {
		pb.unchanged = 0
	}
	pb.resetFailures, pb.resetUnchanged = false, false
	pb.mu.Unlock()
	switch changed, err := pb.poll(ctx); {
	case err != nil:
		pb.failures++
		pb.unchanged = 0
	case changed:
		pb.failures, pb.unchanged = 0, 0
	default:
		pb.failures, pb.unchanged = 0, pb.unchanged+1
	}
	return pause(pb.failures, pb.unchanged)
}

// pause is the time until the next poll. The jitter keeps replicas, and backends that died together, from staying in step.
func pause(failures, unchanged int) time.Duration {
	d := Interval
	switch {
	case failures > 0:
		d = min(firstRetry<<min(failures-1, 8), maxRetry)
	case unchanged > 0:
		d = min(Interval<<min(unchanged-1, 8), MaxInterval)
	}
	return d - rand.N(d/5+1)
}
