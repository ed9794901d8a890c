package remote

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"portico.dev/internal/run"
)

const (
	// Interval is the pause after a round that brought something new: upstream's pause after any.
	Interval = 60 * time.Second
	// LongInterval is the longest pause after rounds that brought nothing new, and so the greatest age of a document that
	// nothing gave away as old (see Rounds.Reask). It is doubled up to there: what changed lately may change again.
	LongInterval = 5 * time.Minute

	firstPause = 500 * time.Millisecond
	// wakeGap keeps a verdict that flaps from turning into a stream of requests.
	wakeGap = 500 * time.Millisecond
)

// Visit makes one round with a backend: it asks for everything that is wanted from it. news says that something was not
// as it was the time before; an error makes the next round come sooner: after 0.5 s, then twice as long each time, up to
// Interval. It must return when ctx ends, and is never called twice at a time.
type Visit func(ctx context.Context) (news bool, err error)

// Rounds keeps asking backends, each at its own pace. Rounds share nothing, so a backend that hangs delays itself only.
// Between its rounds a backend costs a place in a queue.
type Rounds struct {
	visitor func(b Backend) Visit
	rota    *run.TimerQueue

	mu        sync.Mutex // protects followers
	followers map[Backend]*follower
}

// follower is what is known of the rounds with one backend.
type follower struct {
	visit Visit
	turn  *run.ScheduledTask

	// What follows belongs to the turn. failures and calm are rounds in a row that failed, or brought nothing new.
	failures, calm int

	mu sync.Mutex // protects what follows
	// woken forgets how often it failed, stirred how long nothing was new, when the next round begins.
	woken, stirred bool
}

// NewRounds returns Rounds with nobody. visitor returns the Visit of one backend, which may remember things from one round
// to the next.
func NewRounds(visitor func(b Backend) Visit) *Rounds {
	return &Rounds{visitor: visitor, rota: run.NewTimerQueue(), followers: map[Backend]*follower{}}
}

// Run makes the rounds until ctx ends, and returns when none is under way any more.
func (rs *Rounds) Run(ctx context.Context) { rs.rota.Run(ctx) }

// Keep begins with each backend that is new, at once, and ends with those that are gone.
func (rs *Rounds) Keep(backends []Backend) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	keep := make(map[Backend]bool, len(backends))
	for _, b := range backends {
		keep[b] = true
		if rs.followers[b] == nil {
			f := &follower{visit: rs.visitor(b)}
			f.turn = rs.rota.Add(f.round)
			rs.followers[b] = f
		}
	}
	for b, f := range rs.followers {
		if !keep[b] {
			f.turn.Remove()
			delete(rs.followers, b)
		}
	}
}

// Wake makes the backend's next round come at once, and the ones after it as if it were new.
func (rs *Rounds) Wake(b Backend) { rs.stir(b, true, wakeGap) }

// Reask tells that a backend may say something else than before: the next round comes as soon as Interval has passed since
// the last. So whoever never says the same twice is asked no more often than once in Interval.
func (rs *Rounds) Reask(b Backend) { rs.stir(b, false, Interval) }

func (rs *Rounds) stir(b Backend, wake bool, gap time.Duration) {
	rs.mu.Lock()
	f := rs.followers[b]
	rs.mu.Unlock()
	if f == nil {
		return
	}
	f.mu.Lock()
	f.woken, f.stirred = f.woken || wake, true
	f.mu.Unlock()
	f.turn.RunWithin(gap)
}

// round is one turn. It returns how long to rest after it.
func (f *follower) round(ctx context.Context) time.Duration {
	f.mu.Lock()
	if f.woken {
		f.failures = 0
	}
	if f.stirred {
		f.calm = 0
	}
	f.woken, f.stirred = false, false
	f.mu.Unlock()
	switch news, err := f.visit(ctx); {
	case err != nil:
		f.failures++
		f.calm = 0
	case news:
		f.failures, f.calm = 0, 0
	default:
		f.failures, f.calm = 0, f.calm+1
	}
	return pause(f.failures, f.calm)
}

// pause is how long to rest. The jitter keeps replicas, and backends that died together, from asking in step for ever.
func pause(failures, calm int) time.Duration {
	d := Interval
	switch {
	case failures >= 16:
	case failures > 0:
		d = min(firstPause<<(failures-1), Interval)
	case calm > 0:
		d = min(Interval<<min(calm-1, 8), LongInterval)
	}
	return d - rand.N(d/5+1)
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
