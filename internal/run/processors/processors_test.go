package processors

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"
)

func TestProcessorsFollowTheLoad(t *testing.T) {
	type step struct {
		intervals int
		busy      float64 // processors
		want      int
	}
	for name, c := range map[string]struct {
		most  int
		steps []step
	}{
		"there is but one":                     {1, []step{{100, 1, 1}, {100, 0, 1}}},
		"idle for less than half a second":     {2, []step{{calm - 1, 0, 2}}},
		"idle":                                 {2, []step{{calm, 0, 1}}},
		"idle on a large machine":              {64, []step{{calm, 0, 32}, {5 * calm, 0, 1}}},
		"as much as fewer could just do":       {2, []step{{100, shrinkAt, 1}}},
		"a little more":                        {2, []step{{100, shrinkAt + 0.01, 2}}},
		"one is enough for a load":             {2, []step{{calm, 0, 1}, {100, growAt, 1}}},
		"and not enough for more":              {2, []step{{calm, 0, 1}, {1, growAt + 0.01, 2}}},
		"a load that comes at once":            {6, []step{{5 * calm, 0, 1}, {1, 1, 2}, {1, 2, 4}, {1, 4, 6}, {100, 6, 6}}},
		"a load now and then keeps them":       {2, slices.Repeat([]step{{calm - 1, 0, 2}, {1, 1, 2}}, 20)},
		"and one that is no more is forgotten": {4, []step{{100, 4, 4}, {calm, 1.2, 2}, {100, 1.2, 2}, {calm, 0.5, 1}}},
	} {
		d := decider{most: c.most, now: c.most}
		for i, s := range c.steps {
			for range s.intervals {
				d.next(s.busy)
			}
			if d.now != s.want {
				t.Errorf("%s: after step %d, %d processors, want %d", name, i, d.now, s.want)
			}
		}
	}
}

// GOMAXPROCS is of the process: the tests that change it do not run in parallel.

func TestAnIdleProcessUsesOneAndGivesAllBack(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	runtime.SetDefaultGOMAXPROCS()
	most := runtime.GOMAXPROCS(0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	done := make(chan struct{})
	go func() {
		defer close(done)
		Adapt(ctx)
	}()
	awaitProcessors(ctx, 1)
	if ctx.Err() != nil {
		t.Error("an idle process had more than one for a minute")
	}
	stop := make(chan struct{})
	for range most {
		go func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
	}
	awaitProcessors(ctx, most)
	close(stop)
	if ctx.Err() != nil {
		t.Errorf("a busy process had %d of %d for a minute", runtime.GOMAXPROCS(0), most)
	}
	cancel()
	<-done
	if got := runtime.GOMAXPROCS(0); got != most {
		t.Errorf("%d afterwards, want %d", got, most)
	}
}

func TestTheEnvironmentDecides(t *testing.T) {
	t.Setenv("GOMAXPROCS", "2")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	Adapt(ctx) // returns at once
	if ctx.Err() != nil {
		t.Error("it went on, although GOMAXPROCS is set")
	}
}

func awaitProcessors(ctx context.Context, n int) {
	for runtime.GOMAXPROCS(0) != n {
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
	}
}
