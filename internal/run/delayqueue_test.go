package run

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// expired is the items that have expired, in order.
type expired struct {
	mu  sync.Mutex // guards all: each call of the timer has a separate goroutine
	all []string
}

func (e *expired) add(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, name)
}

func TestDelayQueueExpiresInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done expired
		q := &DelayQueue[string]{Delay: 100 * time.Millisecond, Expire: done.add}
		all := make([]Delayed[string], 6)
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			done.mu.Lock()
			defer done.mu.Unlock()
			if !slices.Equal(done.all, want) {
				t.Errorf("%s: %v expired, want %v", when, done.all, want)
			}
		}
		for i := range all { // one each 20 ms
			q.Add(&all[i], fmt.Sprint(i), time.Now())
			time.Sleep(20 * time.Millisecond)
		}
		expect("20 ms after the last was added", "0", "1")
		q.Remove(&all[2])
		q.Remove(&all[0]) // has expired
		q.Remove(&all[5])
		time.Sleep(10 * time.Millisecond)
		expect("30 ms, and the third was removed", "0", "1")
		time.Sleep(time.Second)
		expect("all that were not removed", "0", "1", "3", "4")
		if !q.Empty() {
			t.Error("the queue has items after all have expired, want none")
		}
		for i := range q.lists {
			if q.lists[i].armed {
				t.Errorf("the timer of list %d is set after all have expired", i)
			}
		}
		q.Add(&all[0], "again", time.Now())
		q.Remove(&all[0])
		time.Sleep(time.Second)
		expect("removed before its time", "0", "1", "3", "4")
	})
}

// oneList makes queues use one list, until the test ends.
func oneList(t *testing.T) {
	before := lists
	lists = 1
	t.Cleanup(func() { lists = before })
}

func TestDelayQueueServesManyEntriesPerWakeup(t *testing.T) {
	oneList(t)
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		start := time.Now()
		q := &DelayQueue[int]{Delay: 150 * time.Millisecond, Slack: 50 * time.Millisecond, Expire: func(int) { at = append(at, time.Since(start)) }}
		all := make([]Delayed[int], 4)
		for i, after := range []time.Duration{0, 20, 20, 40} { // at 0, 20, 40 and 80 ms
			time.Sleep(after * time.Millisecond)
			q.Add(&all[i], i, time.Now())
		}
		time.Sleep(time.Second)
		synctest.Wait() // the expired items have been recorded
		if want := []time.Duration{200, 200, 200, 280}; !slices.EqualFunc(at, want, func(got, ms time.Duration) bool { return got == ms*time.Millisecond }) {
			t.Errorf("expiry times = %v, want 200, 200, 200 and 280 ms", at)
		}
	})
}

func TestDelayQueueDoesNotAllocate(t *testing.T) {
	q := &DelayQueue[*int]{Delay: time.Hour, Expire: func(*int) {}}
	oneList(t)
	var d Delayed[*int]
	q.Add(&d, nil, time.Now())
	if n := testing.AllocsPerRun(100, func() {
		q.Remove(&d)
		q.Add(&d, nil, time.Now())
	}); n > 0 {
		t.Errorf("%v allocations per Remove and Add, want 0", n)
	}
	q.Remove(&d)
	q.lists[0].timer.Stop()
}
