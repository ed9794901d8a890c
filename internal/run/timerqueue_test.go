package run

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// runTimes notes when tasks ran.
type runTimes struct {
	start time.Time
	mu    sync.Mutex
	at    []time.Duration
}

func (d *runTimes) note() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = append(d.at, time.Since(d.start))
}

func (d *runTimes) read() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.at
	d.at = nil
	return at
}

// during runs a queue in a bubble while test does its work.
func during(t *testing.T, test func(t *testing.T, r *TimerQueue, d *runTimes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, d := NewTimerQueue(), &runTimes{start: time.Now()}
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
		t.Errorf("%s: runs at %v, want %v", what, got, want)
	}
}

func every(d *runTimes, delay time.Duration) Task {
	return func(context.Context) time.Duration {
		d.note()
		return delay
	}
}

func TestTaskRunsAtOnceAndThenAfterEachDelay(t *testing.T) {
	during(t, func(t *testing.T, r *TimerQueue, d *runTimes) {
		r.Add(every(d, time.Second))
		time.Sleep(2500 * time.Millisecond)
		expect(t, "a delay of a second", d.read(), 0, time.Second, 2*time.Second)
	})
}

func TestDistantRunsAreCoalescedAndNeverLate(t *testing.T) {
	during(t, func(t *testing.T, r *TimerQueue, d *runTimes) {
		for range 3 {
			r.Add(every(d, 30*time.Second))
			time.Sleep(70 * time.Millisecond)
		}
		d.read()
		time.Sleep(30 * time.Second)
		expect(t, "joined within a quarter of a second", d.read(), 30*time.Second, 30*time.Second, 30*time.Second)
	})
}

func TestRunWithinKeepsInterval(t *testing.T) {
	const interval = 500 * time.Millisecond
	during(t, func(t *testing.T, r *TimerQueue, d *runTimes) {
		other := r.Add(every(&runTimes{start: d.start}, time.Minute))
		task := r.Add(every(d, time.Minute))
		time.Sleep(10 * time.Second)
		expect(t, "before", d.read(), 0)
		task.RunWithin(interval)
		task.RunWithin(interval)
		synctest.Wait()
		expect(t, "after a long delay", d.read(), 10*time.Second)
		time.Sleep(100 * time.Millisecond)
		task.RunWithin(interval)
		time.Sleep(10 * time.Second)
		expect(t, "soon after the last", d.read(), 10*time.Second+interval)
		task.RunWithin(time.Hour)
		time.Sleep(time.Minute)
		expect(t, "an interval that is longer than the delay", d.read(), 70*time.Second+interval)
		other.Remove()
	})
}

func TestRunWithinDuringRunAppliesToNextRun(t *testing.T) {
	during(t, func(t *testing.T, r *TimerQueue, d *runTimes) {
		task := r.Add(func(context.Context) time.Duration {
			d.note()
			time.Sleep(2 * time.Second)
			return time.Minute
		})
		time.Sleep(time.Second)
		task.RunWithin(3 * time.Second)
		task.RunWithin(2500 * time.Millisecond)
		task.RunWithin(10 * time.Second)
		time.Sleep(10 * time.Second)
		expect(t, "the least interval of three", d.read(), 0, 2500*time.Millisecond)
	})
}

func TestHangingTaskDelaysNoOtherTask(t *testing.T) {
	during(t, func(t *testing.T, r *TimerQueue, d *runTimes) {
		ended := make(chan struct{})
		hangs := r.Add(func(ctx context.Context) time.Duration {
			defer close(ended)
			<-ctx.Done()
			return 0
		})
		r.Add(every(d, time.Second))
		time.Sleep(1500 * time.Millisecond)
		expect(t, "beside one that hangs", d.read(), 0, time.Second)
		hangs.Remove()
		<-ended
		hangs.RunWithin(0) // of no consequence
		time.Sleep(time.Second)
		expect(t, "afterwards", d.read(), 2*time.Second)
	})
}

func TestRemovedTaskDoesNotRun(t *testing.T) {
	during(t, func(t *testing.T, r *TimerQueue, d *runTimes) {
		task := r.Add(every(d, time.Second))
		synctest.Wait()
		task.Remove()
		task.RunWithin(0)
		time.Sleep(time.Minute)
		expect(t, "after removal", d.read(), 0)
	})
}

func TestRunEndsRunningTasks(t *testing.T) {
	ended := false
	during(t, func(t *testing.T, r *TimerQueue, _ *runTimes) {
		r.Add(func(ctx context.Context) time.Duration {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
			return 0
		})
		synctest.Wait()
	})
	if !ended {
		t.Error("Run returned before its task ended, want it to wait")
	}
}

func TestTasksRunInOrderOfTime(t *testing.T) {
	during(t, func(t *testing.T, r *TimerQueue, d *runTimes) {
		for i := range 200 {
			delay := time.Duration(200-i) * 10 * time.Millisecond
			first := true
			r.Add(func(context.Context) time.Duration {
				if first {
					first = false
					return delay
				}
				d.note()
				return time.Hour
			})
		}
		time.Sleep(3 * time.Second)
		at := d.read()
		if len(at) != 200 || !slices.IsSorted(at) || at[0] != 10*time.Millisecond || at[199] != 2*time.Second {
			t.Errorf("%d runs: %v; want 200 in order from 10 ms to 2 s", len(at), at)
		}
	})
}
