package faults

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// load is a set of workers that repeat one operation until they are stopped.
type load struct {
	stop chan struct{}
	wg   sync.WaitGroup

	done, failed atomic.Int64
	mu           sync.Mutex // guards the following fields
	slowest      time.Duration
	errors       []error // the first few
}

func begin(workers int, do func() error) *load {
	l := &load{stop: make(chan struct{})}
	for range workers {
		l.wg.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				start := time.Now()
				l.note(do(), time.Since(start))
			}
		})
	}
	return l
}

func (l *load) note(err error, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slowest = max(l.slowest, took)
	if err != nil {
		l.failed.Add(1)
		if len(l.errors) < 5 {
			l.errors = append(l.errors, err)
		}
	}
	l.done.Add(1)
}

// upTo waits until so many are done.
func (l *load) upTo(t testing.TB, n int64) {
	t.Helper()
	eventually(t, func() bool { return l.done.Load() >= n })
}

func (l *load) end() {
	close(l.stop)
	l.wg.Wait()
}

// patience bounds every wait, on a machine that does much else.
const patience = 3 * time.Minute

func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("condition not met within %s, want it met", patience)
		}
		<-tick.C
	}
}

// percentile is of the times that it sorts.
func percentile(times []time.Duration, p float64) time.Duration {
	slices.Sort(times)
	return times[min(len(times)-1, int(float64(len(times))*p))]
}

// measure does something n times on each of the workers and returns how long each took.
func measure(workers, n int, do func() error) (times []time.Duration, errs []error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range n {
				start := time.Now()
				err := do()
				took := time.Since(start)
				mu.Lock()
				times = append(times, took)
				if err != nil {
					errs = append(errs, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return times, errs
}
