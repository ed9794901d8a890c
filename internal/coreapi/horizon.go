package coreapi

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/etcd3"

	"portico.dev/internal/run"
)

const (
	// horizonStep is how often the horizon moves, and horizonSteps how many steps it is behind.
	horizonStep, horizonSteps = 5 * time.Second, 2
	// horizonTimeout bounds the question which revision it is.
	horizonTimeout = 2 * time.Second
)

// horizon tells watch caches which revisions they need not remember any more: those that etcd has compacted, and those of
// more than ten seconds ago. A watch cache keeps the tree of its keys as it was after each write, 1.4 KB of new nodes for
// each of many objects, until it hears that etcd has compacted that revision, five to ten minutes later; after tens of
// thousands of writes that is more than the objects. Pages of a list that is older, and those of a kind that was last written
// before, the library asks etcd for, as it does where a kind was last written before the last compaction.
type horizon struct {
	etcd3.Compactor
	now func(context.Context) (int64, error)

	mu     sync.Mutex
	recent [horizonSteps + 1]int64 // the revision of each of the last steps, the oldest first
}

func newHorizon(compactor etcd3.Compactor, kv clientv3.KV) *horizon {
	return &horizon{Compactor: compactor, now: func(ctx context.Context) (int64, error) {
		// Any key will do: the header has the revision.
		answer, err := kv.Get(ctx, "compact_rev_key", clientv3.WithCountOnly(), clientv3.WithSerializable())
		if err != nil {
			return 0, err
		}
		return answer.Header.Revision, nil
	}}
}

// run moves the horizon until ctx ends.
func (h *horizon) run(ctx context.Context) {
	_ = run.Every(ctx, horizonStep, h.move) // never an error
}

// move leaves the horizon where it is while etcd does not answer.
func (h *horizon) move(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, horizonTimeout)
	defer cancel()
	revision, err := h.now(ctx)
	if err != nil {
		return // whoever has a request in hand says what is wrong with etcd
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	copy(h.recent[:], h.recent[1:])
	h.recent[horizonSteps] = revision
}

// CompactRevision is what is asked by each watch cache, every 15 seconds.
func (h *horizon) CompactRevision() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(h.Compactor.CompactRevision(), h.recent[0])
}
