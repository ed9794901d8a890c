package run

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// Task does what there is to do and returns the delay before it runs again. It must return when ctx ends, which is when
// the task is removed or the queue ends.
type Task func(ctx context.Context) (delay time.Duration)

const (
	// coalesce is to what multiple runs that are far away are moved, so that a wakeup serves many of them. They run
	// earlier by as much and never later.
	coalesce = 250 * time.Millisecond
	// coalesceFrom is the delay from which that does not matter.
	coalesceFrom = 20 * coalesce
)

// TimerQueue runs many tasks again and again with one timer between them, so that a thousand that wait cost a thousand
// entries of a heap and not a thousand goroutines. It is safe for concurrent use.
type TimerQueue struct {
	origin time.Time
	// wake tells Run that another task is next.
	wake    chan struct{}
	running sync.WaitGroup // tasks

	mu     sync.Mutex // protects what follows, and the tasks
	timers timerHeap
}

// NewTimerQueue returns a TimerQueue without tasks.
func NewTimerQueue() *TimerQueue {
	return &TimerQueue{origin: time.Now(), wake: make(chan struct{}, 1)}
}

// ScheduledTask is a task in a TimerQueue. It never runs twice at a time.
type ScheduledTask struct {
	queue *TimerQueue
	task  Task

	// What follows is protected by the queue's mu.
	at          time.Time // of the next run, while index is not notQueued
	index       int       // in the queue
	began       time.Time // the latest run; zero: there was none
	cancel      context.CancelFunc
	hastened    bool // while it was running
	minInterval time.Duration
	removed     bool
}

// notQueued is the index of a task that is running, or was removed.
const notQueued = -1

// Add runs task at once, and then whenever the delay has passed that it returned.
func (q *TimerQueue) Add(task Task) *ScheduledTask {
	t := &ScheduledTask{queue: q, task: task, at: time.Now(), index: notQueued}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.enqueue(t)
	return t
}

// RunWithin makes the next run start as soon as interval has passed since the latest one started, unless it is earlier
// anyway. One that is under way is not the next.
func (t *ScheduledTask) RunWithin(interval time.Duration) {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case t.removed:
	case t.index == notQueued && t.hastened:
		t.minInterval = min(t.minInterval, interval)
	case t.index == notQueued:
		t.hastened, t.minInterval = true, interval
	default:
		if at := t.earliest(interval); at.Before(t.at) {
			heap.Remove(&q.timers, t.index)
			t.at = at
			q.enqueue(t)
		}
	}
}

// Remove cancels the context of a run that is under way, and there are no more.
func (t *ScheduledTask) Remove() {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	t.removed = true
	if t.cancel != nil {
		t.cancel()
	}
	if t.index != notQueued {
		heap.Remove(&q.timers, t.index)
	}
}

// Run runs tasks until ctx ends, and returns when none is running any more. It is called once.
func (q *TimerQueue) Run(ctx context.Context) {
	defer q.running.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		if next, any := q.runDue(ctx); any {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
		case <-q.wake:
		case <-timer.C:
		}
	}
}

// runDue starts every task that is due, and returns when the next one is.
func (q *TimerQueue) runDue(ctx context.Context) (next time.Time, any bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for len(q.timers) > 0 && !q.timers[0].at.After(now) {
		t := heap.Pop(&q.timers).(*ScheduledTask)
		t.began, t.hastened = now, false
		var own context.Context
		own, t.cancel = context.WithCancel(ctx)
		q.running.Go(func() { q.runTask(own, t) })
	}
	if len(q.timers) == 0 {
		return time.Time{}, false
	}
	return q.timers[0].at, true
}

// runTask is one run.
func (q *TimerQueue) runTask(ctx context.Context, t *ScheduledTask) {
	delay := t.task(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	t.cancel()
	t.cancel = nil
	if t.removed {
		return
	}
	t.at = time.Now().Add(delay)
	if delay >= coalesceFrom {
		t.at = q.origin.Add(t.at.Sub(q.origin).Truncate(coalesce))
	}
	if t.hastened {
		if at := t.earliest(t.minInterval); at.Before(t.at) {
			t.at = at
		}
	}
	q.enqueue(t)
}

// earliest is the time from which the next run may be when interval must lie between the starts of both. The caller
// holds mu.
func (t *ScheduledTask) earliest(interval time.Duration) time.Time {
	now := time.Now()
	if t.began.IsZero() {
		return now
	}
	if at := t.began.Add(interval); at.After(now) {
		return at
	}
	return now
}

// enqueue adds a task to the heap. The caller holds mu.
func (q *TimerQueue) enqueue(t *ScheduledTask) {
	heap.Push(&q.timers, t)
	if t.index != 0 {
		return
	}
	select {
	case q.wake <- struct{}{}:
	default: // Run is going to wake up already
	}
}

// timerHeap is a heap by time.
type timerHeap []*ScheduledTask

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *timerHeap) Push(x any) {
	t := x.(*ScheduledTask)
	t.index = len(*h)
	*h = append(*h, t)
}

// Pop implements heap.Interface.
func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = notQueued
	return t
}
