package quota

import (
	"context"
	"sync"
)

// turns lets one request at a time through for each key. Keys that nobody waits for take no room.
type turns struct {
	mu   sync.Mutex // guards keys
	keys map[string]*turn
}

type turn struct {
	free    chan struct{} // holds one token while nobody is in
	waiting int           // those who are in or wait
}

func newTurns() *turns { return &turns{keys: map[string]*turn{}} }

// take waits for the turn of the caller, who gives it back by leave.
func (t *turns) take(ctx context.Context, key string) (leave func(), err error) {
	t.mu.Lock()
	k := t.keys[key]
	if k == nil {
		k = &turn{free: make(chan struct{}, 1)}
		k.free <- struct{}{}
		t.keys[key] = k
	}
	k.waiting++
	t.mu.Unlock()
	done := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if k.waiting--; k.waiting == 0 {
			delete(t.keys, key)
		}
	}
	select {
	case <-k.free:
		return func() {
			k.free <- struct{}{}
			done()
		}, nil
	case <-ctx.Done():
		done()
		return nil, ctx.Err()
	}
}
