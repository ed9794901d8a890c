package transport

import (
	"context"
	"sync"
)

// Turns limits concurrent work for all backends, and the share of each backend, so that an unresponsive backend
// delays only its own work. It is safe for concurrent use.
type Turns struct {
	limit, share int

	mu    sync.Mutex     // guards the fields below
	total int            // turns in use
	taken map[string]int // by backend; values are not zero
	freed chan struct{}  // closed when a turn ends; nil if there is no waiter
}

// NewTurns returns Turns with limit concurrent turns, of which one backend may use share.
func NewTurns(limit, share int) *Turns {
	return &Turns{limit: limit, share: share, taken: make(map[string]int)}
}

// Wait waits for a turn for a backend. The caller must call release when its work is done.
func (t *Turns) Wait(ctx context.Context, backend string) (release func(), err error) {
	for {
		freed := t.take(backend)
		if freed == nil {
			return func() { t.release(backend) }, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take takes a turn and returns nil. If no turn is available, it returns a channel that is closed when one ends.
func (t *Turns) take(backend string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.total < t.limit && t.taken[backend] < t.share {
		t.total++
		t.taken[backend]++
		return nil
	}
	if t.freed == nil {
		t.freed = make(chan struct{})
	}
	return t.freed
}

func (t *Turns) release(backend string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total--
	if t.taken[backend]--; t.taken[backend] == 0 {
		delete(t.taken, backend)
	}
	if t.freed != nil {
		close(t.freed)
		t.freed = nil
	}
}
