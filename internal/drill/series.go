package drill

import (
	"context"
	"sync"
)

// Observer is told how drills get on, one call at a time.
type Observer interface {
	Phase(drill, phase string)
	Done(*Result)
}

// Series holds drills, one at a time on each target, and returns their results in the same order. Never two on one: a dead
// server that stores things holds up every namespace there is, also those of another drill. When ctx ends, what runs is
// cleaned up and the rest is not begun.
func Series(ctx context.Context, drills []Drill, targets []Target, o Observer) []*Result {
	results := make([]*Result, len(drills))
	next := make(chan int)
	var mu sync.Mutex // guards o
	var wg sync.WaitGroup
	for _, t := range targets {
		wg.Go(func() {
			for i := range next {
				results[i] = observed(ctx, drills[i], t, o, &mu)
			}
		})
	}
	for i := range drills {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return held(results)
}

func observed(ctx context.Context, d Drill, t Target, o Observer, mu *sync.Mutex) *Result {
	r := Run(ctx, d, t, func(phase string) {
		mu.Lock()
		defer mu.Unlock()
		o.Phase(d.Name, phase)
	})
	mu.Lock()
	defer mu.Unlock()
	o.Done(r)
	return r
}

// held drops the drills that were not begun.
func held(results []*Result) []*Result {
	out := make([]*Result, 0, len(results))
	for _, r := range results {
		if r != nil {
			out = append(out, r)
		}
	}
	return out
}
