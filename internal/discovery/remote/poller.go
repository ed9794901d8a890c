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
	// Interval is the pause after a poll that found a change. Upstream pauses that long after every poll.
	Interval = 60 * time.Second
	// MaxInterval is the longest pause after polls without a change, and thus the maximum age of a document if no event
	// announced its change (see transport.Events). The pause doubles up to it, because a document that changed recently may
	// change again.
	MaxInterval = 5 * time.Minute

	// A failed poll is repeated after firstRetry, then with doubled pauses up to maxRetry.
	firstRetry = 500 * time.Millisecond
	maxRetry   = 5 * time.Second
	// pollNowGap limits the requests to a backend with a flapping verdict.
	pollNowGap = 500 * time.Millisecond
)

// ErrUnconfirmed is returned by a Poll if the response is not accepted yet. The next poll then follows as early as after a
// failure, but the poll does not count as failed.
var ErrUnconfirmed = errors.New("the backend leaves out what it served before")

// Poll fetches everything that is needed from one backend. changed reports whether something differs from the previous
// poll. An error makes the next poll start earlier: after 0.5 s, then with doubled pauses up to 5 s. A Poll must return
// when ctx ends, and is never called concurrently.
type Poll func(ctx context.Context) (changed bool, err error)

// poller polls backends, each on a separate schedule, so that a hanging backend does not delay others. Between its polls a
// backend only occupies an entry in the timer queue.
type poller struct {
	newPoll func(b Backend) Poll
	timers  *run.TimerQueue

	mu       sync.Mutex // guards backends
	backends map[Backend]*polledBackend
}

// polledBackend is one backend's schedule.
type polledBackend struct {
	poll  Poll
	timer *run.ScheduledTask

	// failures and unchanged count consecutive polls that failed, or found no change. Only the timer's callback uses them.
	failures, unchanged int

	mu sync.Mutex // guards the fields below
	// resetFailures and resetUnchanged reset the counts when the next poll begins.
	resetFailures, resetUnchanged bool
}

// newPoller returns a poller without backends. The function newPoll returns the Poll of one backend, which may keep state
// between polls.
func newPoller(newPoll func(b Backend) Poll) *poller {
	return &poller{newPoll: newPoll, timers: run.NewTimerQueue(), backends: map[Backend]*polledBackend{}}
}

// run polls until ctx ends, and returns when no poll is running.
func (p *poller) run(ctx context.Context) { p.timers.Run(ctx) }

// keep starts polling each new backend immediately, and stops polling backends that are no longer in the list.
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

// pollNow polls a backend immediately, and then continues as if it were new.
func (p *poller) pollNow(b Backend) { p.advance(b, true, pollNowGap) }

// pollSoon polls a backend as soon as Interval has passed since the last poll. A backend with a different response to every
// poll is therefore polled no more often than once in Interval.
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

// pause returns the time until the next poll. The jitter prevents replicas, and backends that died together, from polling
// in step.
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
