package run

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// Task performs one run and returns the delay before the next one. It must return when ctx ends, which is when the task is
// removed or the queue ends.
type Task func(ctx context.Context) (delay time.Duration)

const (
	// Runs that are not due soon are moved to a multiple of coalesce, so that one wakeup serves many of them. They run earlier
	// by up to that time and never later.
	coalesce = 250 * time.Millisecond
	// coalesceFrom is the delay from which runs are moved.
	coalesceFrom = 20 * coalesce
)

// TimerQueue runs many tasks periodically with one shared timer, so that a thousand waiting tasks cost a thousand heap entries
// and not a thousand goroutines. It is safe for concurrent use.
type TimerQueue struct {
	origin time.Time
	// wake notifies Run that the next task has changed.
	wake    chan struct{}
	running sync.WaitGroup // tasks

	mu     sync.Mutex // guards the fields below, and the tasks
	timers timerHeap
}

// NewTimerQueue returns a TimerQueue without tasks.
func NewTimerQueue() *TimerQueue {
	return &TimerQueue{origin: time.Now(), wake: make(chan struct{}, 1)}
}

// ScheduledTask is a task in a TimerQueue. Its runs never overlap.
type ScheduledTask struct {
	queue *TimerQueue
	task  Task

	// guarded by the queue's mu
	at          time.Time // time of the next run, unless index is notQueued
	index       int       // in the queue
	began       time.Time // start of the latest run; zero before the first one
	cancel      context.CancelFunc
	hastened    bool // while it was running
	minInterval time.Duration
	removed     bool
}

// notQueued is the index of a task that is running or was removed.
const notQueued = -1

// Add runs task immediately, and then after each delay that it returns.
func (q *TimerQueue) Add(task Task) *ScheduledTask {
	t := &ScheduledTask{queue: q, task: task, at: time.Now(), index: notQueued}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.enqueue(t)
	return t
}

// RunWithin makes the next run start as soon as interval has passed since the start of the latest one, unless it is scheduled
// earlier. A run in progress does not count as the next run.
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

// Remove removes the task and cancels the context of a run in progress.
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

// Run runs tasks until ctx ends, and returns when none is running. It must be called only once.
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

// runDue starts every task that is due, and returns the time of the next one.
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

// runTask performs one run.
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

// earliest returns the earliest time of the next run if interval must pass between the starts of two runs. The caller holds mu.
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
	default: // Run is about to wake up
	}
}

// timerHeap is a heap ordered by time.
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
