package overload

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"
)

// ReadLimiter bounds what connections may bring between two readings, so that it cannot outrun the Monitor, which may be late on a busy
// machine, nor the collector. Below half of the limit nothing is counted. The zero value counts nothing until a Monitor has it do so.
// A nil Intake takes everything. It is safe for concurrent use.
type ReadLimiter struct {
	enabled atomic.Bool

	mu      sync.Mutex // guards what follows
	budget  int64      // bytes until the next reading
	waiting list.List  // of *arrival, in their order
}

// waitingRead is something that came and has no room yet.
type waitingRead struct {
	n        int64
	admitted chan struct{}
}

const (
	// readParts is the part of the limit that may come in between two readings, and shortParts while the collector does not keep up
	// or the level is Critical: some 60 MB/s of 350 MiB.
	readParts, lowReadParts = 32, 256
	// maxWait is how long something waits at most: it is taken then.
	maxWait = time.Second
)

// Wait returns when there is room for n bytes that have come, after a second at most.
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

// refill makes room for n bytes until it is called again, first for what waits.
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

// disable has everything taken that waits, and all that comes until refill is called.
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
