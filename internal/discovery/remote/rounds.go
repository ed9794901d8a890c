package remote

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// DefaultInterval is the pause after a good round: upstream's.
	DefaultInterval = 60 * time.Second

	firstPause = 500 * time.Millisecond
	// wakeGap keeps a verdict that flaps from turning into a stream of requests.
	wakeGap = 500 * time.Millisecond
)

// Rounds keeps one worker for each backend. A worker asks its backend for everything that is wanted from it, rests, and
// asks again. Workers share nothing, so a backend that hangs delays itself only.
//
// All methods but Wait belong to one goroutine, the one that keeps the list of backends up to date.
type Rounds struct {
	// Visitor returns the function that makes one round with a backend; it may remember things from one round to the
	// next. A round must return when ctx ends. An error makes the next one come sooner: after 0.5 s, then twice as long
	// each time, up to Interval.
	Visitor func(b Backend) func(ctx context.Context) error
	// Interval is the pause after a good round. Zero means DefaultInterval.
	Interval time.Duration

	workers map[Backend]*worker
	running sync.WaitGroup
}

type worker struct {
	cancel context.CancelFunc
	wake   chan struct{}
}

// Keep starts a worker for each backend that has none and ends those of backends that are gone. The workers end with
// ctx; Wait returns when they have.
func (rs *Rounds) Keep(ctx context.Context, backends []Backend) {
	if rs.workers == nil {
		rs.workers = map[Backend]*worker{}
	}
	keep := map[Backend]bool{}
	for _, b := range backends {
		keep[b] = true
		if rs.workers[b] == nil {
			rs.workers[b] = rs.start(ctx, b)
		}
	}
	for b, w := range rs.workers {
		if !keep[b] {
			w.cancel()
			delete(rs.workers, b)
		}
	}
}

// Wake makes the backend's next round come at once and forgets how often it failed.
func (rs *Rounds) Wake(b Backend) {
	if w := rs.workers[b]; w != nil {
		select {
		case w.wake <- struct{}{}:
		default: // it has been woken already and did not get to it yet
		}
	}
}

// Wait returns when every worker that was ever started has returned.
func (rs *Rounds) Wait() { rs.running.Wait() }

func (rs *Rounds) start(ctx context.Context, b Backend) *worker {
	ctx, cancel := context.WithCancel(ctx)
	w := &worker{cancel: cancel, wake: make(chan struct{}, 1)}
	ask := rs.Visitor(b)
	rs.running.Go(func() { rs.work(ctx, w, ask) })
	return w
}

func (rs *Rounds) work(ctx context.Context, w *worker, ask func(context.Context) error) {
	failures := 0
	for ctx.Err() == nil {
		began := time.Now()
		if err := ask(ctx); err != nil {
			failures++
		} else {
			failures = 0
		}
		select {
		case <-ctx.Done():
		case <-time.After(rs.pause(failures)):
		case <-w.wake:
			failures = 0
			rest(ctx, wakeGap-time.Since(began))
		}
	}
}

// pause is how long to rest after that many failures in a row. The jitter keeps replicas, and backends that died
// together, from asking in step for ever.
func (rs *Rounds) pause(failures int) time.Duration {
	interval := rs.Interval
	if interval == 0 {
		interval = DefaultInterval
	}
	pause := interval
	if failures > 0 && failures < 16 {
		pause = min(firstPause<<(failures-1), interval)
	}
	return pause - rand.N(pause/5+1)
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
