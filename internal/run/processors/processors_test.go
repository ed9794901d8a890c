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

func TestProcessorsFollowLoad(t *testing.T) {
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

// load simulates a process with an adapter.
type load struct {
	*adapter

	mu         sync.Mutex // guards the following fields
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

// after returns the number of processors after d, and the number of looks in between.
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

func TestIdleProcessIsRarelyChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := adapting(t)
		if n, _ := l.after(calm*interval + interval/2); n != 1 {
			t.Errorf("%d processors after half a second, want 1", n)
		}
		if n, looks := l.after(100 * restInterval); n != 1 || looks > 100 {
			t.Errorf("idle process: %d processors, %d looks in 100 s; want 1 and at most 100", n, looks)
		}
	})
}

func TestRequestToIdleProcessRaisesProcessorsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := adapting(t)
		for _, rested := range []time.Duration{10 * restInterval, 10*restInterval + restInterval/3, 10*restInterval - time.Millisecond} {
			if n, _ := l.after(rested); n != 1 {
				t.Fatalf("idle process: %d processors, want 1", n)
			}
			l.begin(1)
			l.noteAsked()
			if n, _ := l.after(interval + time.Millisecond); n != 2 {
				t.Errorf("%d processors after %s under load, want 2", n, interval)
			}
			if n, _ := l.after(time.Second); n != 2 {
				t.Errorf("%d processors under load without new requests, want 2", n)
			}
			l.begin(0)
		}
	})
}

func TestRequestJustBeforeCheckIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := adapting(t)
		l.after(10*restInterval + restInterval/2)
		l.noteAsked() // from here on there is a look in each interval, until one without a request
		l.after(2*interval - time.Millisecond)
		l.noteAsked()
		l.begin(1)
		if n, _ := l.after(interval + 2*time.Millisecond); n != 2 {
			t.Errorf("%d processors after a request a millisecond before a look, want 2", n)
		}
	})
}

func TestLoadWithoutRequestsIsDetected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := adapting(t)
		l.after(10*restInterval + restInterval/2)
		l.begin(1)
		if n, _ := l.after(restInterval + 2*interval); n != 2 {
			t.Errorf("%d processors under load without a request, want 2", n)
		}
	})
}

func TestNoteWorkReachesRunningAdapter(t *testing.T) {
	NoteWork() // without an adapter, the call has no effect
	a := newAdapter(used, setProcessors)
	current.Store(a)
	defer current.Store(nil)
	NoteWork()
	if !a.asked.Load() {
		t.Error("Asked did not set the adapter's flag, want it set")
	}
}

// GOMAXPROCS is of the process: the tests that change it do not run in parallel.

// The use is simulated: on an overloaded machine, a process cannot use all its processors.
func TestIdleProcessUsesOneProcessor(t *testing.T) {
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
		t.Error("idle process: more than one processor for a minute, want 1")
	}
	now := time.Now()
	busySince.Store(&now)
	awaitProcessors(ctx, most)
	if ctx.Err() != nil {
		t.Errorf("busy process: %d processors after a minute, want %d", runtime.GOMAXPROCS(0), most)
	}
	cancel()
	<-done
	if got := runtime.GOMAXPROCS(0); got != most {
		t.Errorf("%d afterwards, want %d", got, most)
	}
}

func TestProcessorUseIsRead(t *testing.T) {
	before, ok := used()
	if !ok {
		t.Skip("it cannot be read on this system")
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if after, _ := used(); after >= before+50*time.Millisecond {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a loop of a minute used less than 50ms of CPU after %s, want at least 50ms", before)
		}
	}
}

func TestGOMAXPROCSDisablesAdaptation(t *testing.T) {
	t.Setenv("GOMAXPROCS", "2")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	Adapt(ctx) // returns at once
	if ctx.Err() != nil {
		t.Error("Adapt did not return although GOMAXPROCS is set, want it to return at once")
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
