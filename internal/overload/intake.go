package overload

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"
)

// Intake bounds what connections may bring between two readings, so that it cannot outrun the Monitor, which may be late on a busy
// machine, nor the collector. Below half of the limit nothing is counted. The zero value counts nothing until a Monitor has it do so.
// A nil Intake takes everything. It is safe for concurrent use.
type Intake struct {
	counting atomic.Bool

	mu      sync.Mutex // guards what follows
	room    int64      // bytes until the next reading
	waiting list.List  // of *arrival, in their order
}

// arrival is something that came and has no room yet.
type arrival struct {
	n     int64
	taken chan struct{}
}

const (
	// intakeParts is the part of the limit that may come in between two readings, and shortParts while the collector does not keep up
	// or the level is Critical: some 60 MB/s of 350 MiB.
	intakeParts, shortParts = 32, 256
	// longestWait is how long something waits at most: it is taken then.
	longestWait = time.Second
)

// Take returns when there is room for n bytes that have come, after a second at most.
func (i *Intake) Take(n int) {
	if i == nil || !i.counting.Load() {
		return
	}
	i.mu.Lock()
	if !i.counting.Load() || i.waiting.Len() == 0 && i.room > 0 {
		i.room -= int64(n)
		i.mu.Unlock()
		return
	}
	a := &arrival{n: int64(n), taken: make(chan struct{})}
	at := i.waiting.PushBack(a)
	i.mu.Unlock()
	timer := time.NewTimer(longestWait)
	defer timer.Stop()
	select {
	case <-a.taken:
	case <-timer.C:
		i.mu.Lock()
		i.waiting.Remove(at)
		i.mu.Unlock()
	}
}

// refill makes room for n bytes until it is called again, first for what waits.
func (i *Intake) refill(n int64) {
	i.counting.Store(true)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.room = n
	for e := i.waiting.Front(); e != nil && i.room > 0; e = i.waiting.Front() {
		a := i.waiting.Remove(e).(*arrival)
		i.room -= a.n
		close(a.taken)
	}
}

// open has everything taken that waits, and all that comes until refill is called.
func (i *Intake) open() {
	if !i.counting.Swap(false) {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for e := i.waiting.Front(); e != nil; e = i.waiting.Front() {
		close(i.waiting.Remove(e).(*arrival).taken)
	}
}
