package rota

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// diary notes when turns began.
type diary struct {
	start time.Time
	mu    sync.Mutex
	at    []time.Duration
}

func (d *diary) note() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = append(d.at, time.Since(d.start))
}

func (d *diary) read() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.at
	d.at = nil
	return at
}

// during runs a rota in a bubble while test does its work.
func during(t *testing.T, test func(t *testing.T, r *Rota, d *diary)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, d := New(), &diary{start: time.Now()}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(ctx)
		}()
		test(t, r, d)
		cancel()
		<-done
	})
}

func expect(t *testing.T, what string, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: turns at %v, want %v", what, got, want)
	}
}

func every(d *diary, rest time.Duration) Work {
	return func(context.Context) time.Duration {
		d.note()
		return rest
	}
}

func TestATurnComesAtOnceAndThenAfterEachRest(t *testing.T) {
	during(t, func(t *testing.T, r *Rota, d *diary) {
		r.Join(every(d, time.Second))
		time.Sleep(2500 * time.Millisecond)
		expect(t, "a rest of a second", d.read(), 0, time.Second, 2*time.Second)
	})
}

func TestWhatIsFarAwayComesTogetherAndNeverLate(t *testing.T) {
	during(t, func(t *testing.T, r *Rota, d *diary) {
		for range 3 {
			r.Join(every(d, 30*time.Second))
			time.Sleep(70 * time.Millisecond)
		}
		d.read()
		time.Sleep(30 * time.Second)
		expect(t, "joined within a quarter of a second", d.read(), 30*time.Second, 30*time.Second, 30*time.Second)
	})
}

func TestWhoeverHurriesIsNextButKeepsTheGap(t *testing.T) {
	const gap = 500 * time.Millisecond
	during(t, func(t *testing.T, r *Rota, d *diary) {
		other := r.Join(every(&diary{start: d.start}, time.Minute))
		turn := r.Join(every(d, time.Minute))
		time.Sleep(10 * time.Second)
		expect(t, "before", d.read(), 0)
		turn.Hurry(gap)
		turn.Hurry(gap)
		synctest.Wait()
		expect(t, "after a long rest", d.read(), 10*time.Second)
		time.Sleep(100 * time.Millisecond)
		turn.Hurry(gap)
		time.Sleep(10 * time.Second)
		expect(t, "soon after the last", d.read(), 10*time.Second+gap)
		turn.Hurry(time.Hour)
		time.Sleep(time.Minute)
		expect(t, "a gap that is longer than the rest", d.read(), 70*time.Second+gap)
		other.Leave()
	})
}

func TestAHurryDuringATurnIsForTheNext(t *testing.T) {
	during(t, func(t *testing.T, r *Rota, d *diary) {
		turn := r.Join(func(context.Context) time.Duration {
			d.note()
			time.Sleep(2 * time.Second)
			return time.Minute
		})
		time.Sleep(time.Second)
		turn.Hurry(3 * time.Second)
		turn.Hurry(2500 * time.Millisecond)
		turn.Hurry(10 * time.Second)
		time.Sleep(10 * time.Second)
		expect(t, "the least gap of three", d.read(), 0, 2500*time.Millisecond)
	})
}

func TestOneThatHangsHoldsUpNobodyAndEndsWhenItsOwnerLeaves(t *testing.T) {
	during(t, func(t *testing.T, r *Rota, d *diary) {
		ended := make(chan struct{})
		hangs := r.Join(func(ctx context.Context) time.Duration {
			defer close(ended)
			<-ctx.Done()
			return 0
		})
		r.Join(every(d, time.Second))
		time.Sleep(1500 * time.Millisecond)
		expect(t, "beside one that hangs", d.read(), 0, time.Second)
		hangs.Leave()
		<-ended
		hangs.Hurry(0) // of no consequence
		time.Sleep(time.Second)
		expect(t, "afterwards", d.read(), 2*time.Second)
	})
}

func TestWhoeverLeftHasNoMoreTurns(t *testing.T) {
	during(t, func(t *testing.T, r *Rota, d *diary) {
		turn := r.Join(every(d, time.Second))
		synctest.Wait()
		turn.Leave()
		turn.Hurry(0)
		time.Sleep(time.Minute)
		expect(t, "after leaving", d.read(), 0)
	})
}

func TestRunEndsWhatIsBeingDone(t *testing.T) {
	ended := false
	during(t, func(t *testing.T, r *Rota, _ *diary) {
		r.Join(func(ctx context.Context) time.Duration {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
			return 0
		})
		synctest.Wait()
	})
	if !ended {
		t.Error("Run returned before the turn was over")
	}
}

func TestManyAreServedInTheOrderOfTheirTimes(t *testing.T) {
	during(t, func(t *testing.T, r *Rota, d *diary) {
		for i := range 200 {
			rest := time.Duration(200-i) * 10 * time.Millisecond
			first := true
			r.Join(func(context.Context) time.Duration {
				if first {
					first = false
					return rest
				}
				d.note()
				return time.Hour
			})
		}
		time.Sleep(3 * time.Second)
		at := d.read()
		if len(at) != 200 || !slices.IsSorted(at) || at[0] != 10*time.Millisecond || at[199] != 2*time.Second {
			t.Errorf("%d turns: %v", len(at), at)
		}
	})
}
