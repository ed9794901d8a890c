package transport

import (
	"context"
	"sync"
)

// Turns bounds work that is done concurrently for all backends, and gives each backend no more than a share of it: a backend that does
// not answer delays its own work only. It is safe for concurrent use.
type Turns struct {
	limit, share int

	mu    sync.Mutex     // guards what follows
	total int            // turns that are taken
	taken map[string]int // by backend; none is zero
	freed chan struct{}  // closed when a turn ends; nil: nothing waits
}

// NewTurns returns Turns of which limit are taken at a time, and share of them for one backend.
func NewTurns(limit, share int) *Turns {
	return &Turns{limit: limit, share: share, taken: make(map[string]int)}
}

// Wait waits for a turn for a backend. The caller calls release when its work is done.
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

// take takes a turn. If there is none, it returns a channel that is closed when one ends.
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
