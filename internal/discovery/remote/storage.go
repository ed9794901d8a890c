package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/run"
)

// LastKnown stores the last documents of backends, by the name of the APIService. All replicas share it, and it persists
// across restarts.
type LastKnown interface {
	// Load returns all stored documents.
	Load(ctx context.Context) (map[string][]byte, error)
	Save(ctx context.Context, name string, value []byte) error
	// Delete deletes a document. It is not an error if the name is not stored.
	Delete(ctx context.Context, name string) error
}

// Follower is a LastKnown that replicas can watch.
type Follower interface {
	// Follow calls saved with all stored documents, then with every document that a replica saves, in order for each name,
	// until ctx ends.
	Follow(ctx context.Context, saved func(name string, value []byte))
}

// ErrNewerRelease is why a stored document is ignored that a newer release wrote in a format which this release may
// understand only in part.
var ErrNewerRelease = errors.New("a newer release wrote it")

const (
	storageTimeout = 10 * time.Second
	storageRetry   = time.Second
)

// writer writes to LastKnown in the background, one value at a time, so that slow or unavailable storage does not delay
// documents. It retries failed writes.
type writer struct {
	store LastKnown
	log   *zap.Logger

	mu      sync.Mutex
	pending map[string][]byte // a nil value means delete
	more    chan struct{}
}

func newWriter(store LastKnown, log *zap.Logger) *writer {
	return &writer{store: store, log: log, pending: map[string][]byte{}, more: make(chan struct{}, 1)}
}

// load reads the stored values, and retries until storage answers or ctx ends: without them the kinds of a dead backend
// would be unknown.
func (w *writer) load(ctx context.Context) (map[string][]byte, error) {
	for {
		values, err := w.loadOnce(ctx)
		if err == nil {
			return values, nil
		}
		w.log.Warn("failed to load last-known documents; retrying", zap.Error(err))
		if !run.Pause(ctx, storageRetry) {
			return nil, fmt.Errorf("load last-known documents: %w", err)
		}
	}
}

func (w *writer) loadOnce(ctx context.Context) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, storageTimeout)
	defer cancel()
	return w.store.Load(ctx)
}

// follow calls saved with every value that a replica saves until ctx ends, if the storage is a Follower.
func (w *writer) follow(ctx context.Context, saved func(name string, value []byte)) {
	if f, ok := w.store.(Follower); ok {
		f.Follow(ctx, saved)
	}
}

// put stores a value in the background; nil deletes it.
func (w *writer) put(name string, value []byte) {
	w.mu.Lock()
	w.pending[name] = value
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// run writes until ctx ends.
func (w *writer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.more:
		}
		for ctx.Err() == nil && w.flush(ctx) {
			run.Pause(ctx, storageRetry)
		}
	}
}

// flush writes all pending values and reports whether some are left.
func (w *writer) flush(ctx context.Context) bool {
	w.mu.Lock()
	batch := w.pending
	w.pending = map[string][]byte{}
	w.mu.Unlock()
	left := false
	for name, value := range batch {
		if err := w.write(ctx, name, value); err != nil {
			w.log.Warn("failed to store a last-known document; retrying", zap.String("apiservice", name), zap.Error(err))
			w.putBack(name, value)
			left = true
		}
	}
	return left
}

func (w *writer) write(ctx context.Context, name string, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, storageTimeout)
	defer cancel()
	if value == nil {
		return w.store.Delete(ctx, name)
	}
	return w.store.Save(ctx, name, value)
}

// putBack queues a value again, unless a newer one has been queued since.
func (w *writer) putBack(name string, value []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, newer := w.pending[name]; !newer {
		w.pending[name] = value
	}
}
