package overload

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"
)

// ReadLimiter limits how much connections may read between two readings of the Monitor, so that memory does not grow
// faster than a delayed Monitor or the collector can handle. It is disabled below half of the limit. The zero value
// is disabled until a Monitor uses it. A nil ReadLimiter never waits. It is safe for concurrent use.
type ReadLimiter struct {
	enabled atomic.Bool

	mu      sync.Mutex // guards the fields below
	budget  int64      // bytes until the next reading
	waiting list.List  // of *waitingRead, in FIFO order
}

// waitingRead is a read that waits for budget.
type waitingRead struct {
	n        int64
	admitted chan struct{}
}

const (
	// Between two readings limit/readParts may be read, or limit/lowReadParts while the collector does not keep up or
	// the level is Critical or higher: about 60 MB/s with a limit of 350 MiB.
	readParts, lowReadParts = 32, 256
	// maxWait is the maximum time that a read waits.
	maxWait = time.Second
)

// Wait waits until the budget permits the n bytes that were read, at most maxWait.
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

// refill sets the budget until the next call. Waiting reads are admitted first.
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

// disable admits all waiting reads, and all further reads until refill is called.
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
