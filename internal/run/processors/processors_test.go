package processors

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// load is what a process does that has adapter.
type load struct {
	*adapter

	mu         sync.Mutex // guards what follows
	busy       float64    // processors, from since on
	since      time.Time
	before     time.Duration // used until then
	looks      int
	processors int
}

// adapting runs an adapter with two processors until the test ends.
func adapting(t *testing.T) *load {
	l := &load{since: time.Now(), processors: 2}
	l.adapter = newAdapter(l.used, l.set)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.run(ctx, 2) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return l
}

func (l *load) used() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks++
	return l.sum(), true
}

// sum is called with mu held.
func (l *load) sum() time.Duration {
	return l.before + time.Duration(l.busy*float64(time.Since(l.since)))
}

func (l *load) set(n int, _ bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.processors = n
	return n
}

// begin makes the process use so many processors from now on.
func (l *load) begin(busy float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.before, l.since, l.busy = l.sum(), time.Now(), busy
}

// after is how many processors there are after d, and how often was looked meanwhile.
func (l *load) after(d time.Duration) (processors, looks int) {
	l.mu.Lock()
	was := l.looks
	l.mu.Unlock()
	time.Sleep(d) // of the bubble's time
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.processors, l.looks - was
}

func TestAProcessAtRestIsRarelyLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := adapting(t)
		if n, _ := l.after(calm*interval + interval/2); n != 1 {
			t.Errorf("it has %d after half a second", n)
		}
		if n, looks := l.after(100 * restInterval); n != 1 || looks > 100 {
			t.Errorf("at rest it has %d, and is looked at %d times in 100 s", n, looks)
		}
	})
}

func TestWhatIsAskedOfAProcessAtRestGetsProcessorsAsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := adapting(t)
		for _, rested := range []time.Duration{10 * restInterval, 10*restInterval + restInterval/3, 10*restInterval - time.Millisecond} {
			if n, _ := l.after(rested); n != 1 {
				t.Fatalf("at rest it has %d", n)
			}
			l.begin(1)
			l.noteAsked()
			if n, _ := l.after(interval + time.Millisecond); n != 2 {
				t.Errorf("%d after %s", n, interval)
			}
			if n, _ := l.after(time.Second); n != 2 {
				t.Errorf("%d when the load goes on, and nothing more is asked", n)
			}
			l.begin(0)
		}
	})
}

func TestWhatIsAskedJustBeforeALookIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := adapting(t)
		l.after(10*restInterval + restInterval/2)
		l.noteAsked() // and from now on there is a look in each interval, until one in which nothing was asked
		l.after(2*interval - time.Millisecond)
		l.noteAsked()
		l.begin(1)
		if n, _ := l.after(interval + 2*time.Millisecond); n != 2 {
			t.Errorf("%d for what was asked a millisecond before a look", n)
		}
	})
}

func TestALoadThatNobodyAskedForIsNoticedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := adapting(t)
		l.after(10*restInterval + restInterval/2)
		l.begin(1)
		if n, _ := l.after(restInterval + 2*interval); n != 2 {
			t.Errorf("it has %d", n)
		}
	})
}

func TestAskedReachesTheAdapterThatRuns(t *testing.T) {
	Asked() // nothing is there to be told
	a := newAdapter(used, setProcessors)
	current.Store(a)
	defer current.Store(nil)
	Asked()
	if !a.asked.Load() {
		t.Error("it is not told")
	}
}

// GOMAXPROCS is of the process: the tests that change it do not run in parallel.

// The use is made up: on a machine that has too much to do, a process cannot use what it could.
func TestAnIdleProcessUsesOneAndGivesAllBack(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	runtime.SetDefaultGOMAXPROCS()
	most := runtime.GOMAXPROCS(0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var busySince atomic.Pointer[time.Time]
	done := make(chan struct{})
	go func() {
		defer close(done)
		adapt(ctx, func() (time.Duration, bool) {
			if since := busySince.Load(); since != nil {
				return time.Duration(most) * time.Since(*since), true
			}
			return 0, true
		})
	}()
	awaitProcessors(ctx, 1)
	if ctx.Err() != nil {
		t.Error("an idle process had more than one for a minute")
	}
	now := time.Now()
	busySince.Store(&now)
	awaitProcessors(ctx, most)
	if ctx.Err() != nil {
		t.Errorf("a busy process had %d of %d for a minute", runtime.GOMAXPROCS(0), most)
	}
	cancel()
	<-done
	if got := runtime.GOMAXPROCS(0); got != most {
		t.Errorf("%d afterwards, want %d", got, most)
	}
}

func TestUseOfProcessorsIsRead(t *testing.T) {
	before, ok := used()
	if !ok {
		t.Skip("it cannot be read on this system")
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if after, _ := used(); after >= before+50*time.Millisecond {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a loop of a minute uses less than 50ms: %s before", before)
		}
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
