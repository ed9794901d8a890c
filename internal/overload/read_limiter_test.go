package overload

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// taking admits n items of a size in order and records the admission of each.
type taking struct {
	mu    sync.Mutex // guards the fields below
	taken []int
	done  sync.WaitGroup
}

func (a *taking) take(i *ReadLimiter, size int, all ...int) {
	for _, one := range all {
		a.done.Go(func() {
			i.Wait(size)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.taken = append(a.taken, one)
		})
		synctest.Wait() // so that they arrive in this order
	}
}

func (a *taking) is(t *testing.T, when string, want ...int) {
	t.Helper()
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.Sort(a.taken) // Items that are admitted together arrive in any order.
	if !slices.Equal(a.taken, want) {
		t.Errorf("admitted %s = %v, want %v", when, a.taken, want)
	}
}

func TestUnboundedReadLimiterDoesNotWait(t *testing.T) {
	var none *ReadLimiter
	none.Wait(1 << 40)
	new(ReadLimiter).Wait(1 << 40)
}

func TestReadLimiterAdmitsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var i ReadLimiter
		var a taking
		i.refill(100)
		a.take(&i, 60, 1, 2, 3, 4, 5)
		a.is(t, "at first", 1, 2) // The second one has some space.
		i.refill(100)
		a.is(t, "after a reading", 1, 2, 3, 4)
		a.take(&i, 10, 6)
		a.is(t, "behind one that waits", 1, 2, 3, 4)
		i.disable()
		a.is(t, "when there is enough memory", 1, 2, 3, 4, 5, 6)
		a.take(&i, 1000, 7, 8)
		a.is(t, "afterwards", 1, 2, 3, 4, 5, 6, 7, 8)
		a.done.Wait()
	})
}

// No request waits without limit for a missing reading or behind other requests.
func TestReadLimiterWaitsAtMostOneSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var i ReadLimiter
		var a taking
		i.refill(1)
		a.take(&i, 10, 1, 2)
		time.Sleep(maxWait - time.Nanosecond)
		a.is(t, "before", 1)
		time.Sleep(2 * time.Nanosecond)
		a.is(t, "after", 1, 2)
		a.done.Wait()
		if i.waiting.Len() != 0 {
			t.Errorf("%d admitted requests still wait, want 0", i.waiting.Len())
		}
	})
}

// The available space follows the readings.
func TestReadLimiterFollowsMemoryReadings(t *testing.T) {
	for name, test := range map[string]struct {
		certain, possible uint64 // of 1000
		room              int64  // -1: unlimited
	}{
		"little is in use":                   {100, 499, -1},
		"half of it":                         {100, 500, 1000 / readParts},
		"the collector does not keep up":     {100, 1000, 1000 / lowReadParts},
		"critical":                           {880, 880, 1000 / lowReadParts},
		"load is shed, and there is garbage": {760, 900, 1000 / readParts},
	} {
		t.Run(name, func(t *testing.T) {
			var i *ReadLimiter
			watched(t, func(w *testEnv, m *Monitor) {
				i = m.ReadLimiter()
				w.set(test.certain, test.possible)
				pass(2 * slowInterval)
				i.mu.Lock()
				counting, room := i.enabled.Load(), i.budget
				i.mu.Unlock()
				if counting != (test.room >= 0) || counting && room != test.room {
					t.Errorf("counting = %t, room = %d, want room %d (-1: unlimited)", counting, room, test.room)
				}
			})
			if i.enabled.Load() {
				t.Error("limiter is enabled without readings, want it disabled")
			}
		})
	}
}
