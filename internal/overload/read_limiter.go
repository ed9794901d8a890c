package overload

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"
)

// ReadLimiter bounds what connections may read between two readings of the Monitor, so that memory grows neither faster
// than a Monitor that is late on a busy machine, nor than the collector. Below half of the limit it is disabled, and so is
// the zero value until a Monitor uses it. A nil ReadLimiter never waits. It is safe for concurrent use.
type ReadLimiter struct {
	enabled atomic.Bool

	mu      sync.Mutex // guards what follows
	budget  int64      // bytes until the next reading
	waiting list.List  // of *waitingRead, first come first served
}

// waitingRead is a read that waits for budget.
type waitingRead struct {
	n        int64
	admitted chan struct{}
}

const (
	// readParts is the part of the limit that may be read between two readings, and lowReadParts the part while the
	// collector does not keep up or the level is Critical: some 60 MB/s with 350 MiB.
	readParts, lowReadParts = 32, 256
	// maxWait is after how long a read proceeds in any case.
	maxWait = time.Second
)

// Wait waits until the budget allows n bytes that were read, or maxWait has passed.
func (i *ReadLimiter) Wait(n int) {
	if i == nil || !i.enabled.Load() {
		return
	}
	i.mu.Lock()
	if !i.enabled.Load() || i.waiting.Len() == 0 && i.budget > 0 {
		i.budget -= int64(n)
		i.mu.Unlock()
		return
	}
	a := &waitingRead{n: int64(n), admitted: make(chan struct{})}
	at := i.waiting.PushBack(a)
	i.mu.Unlock()
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case <-a.admitted:
	case <-timer.C:
		i.mu.Lock()
		i.waiting.Remove(at)
		i.mu.Unlock()
	}
}

// refill sets the budget until the next call, and admits waiting reads first.
func (i *ReadLimiter) refill(n int64) {
	i.enabled.Store(true)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.budget = n
	for e := i.waiting.Front(); e != nil && i.budget > 0; e = i.waiting.Front() {
		a := i.waiting.Remove(e).(*waitingRead)
		i.budget -= a.n
		close(a.admitted)
	}
}

// disable admits all waiting reads, and all reads until refill is called.
func (i *ReadLimiter) disable() {
	if !i.enabled.Swap(false) {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for e := i.waiting.Front(); e != nil; e = i.waiting.Front() {
		close(i.waiting.Remove(e).(*waitingRead).admitted)
	}
}
