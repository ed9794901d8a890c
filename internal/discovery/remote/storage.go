package remote

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
)

// LastKnown keeps what backends last said, by the name of the APIService, where all replicas and the next start of this
// one find it.
type LastKnown interface {
	// Load returns everything that is kept.
	Load(ctx context.Context) (map[string][]byte, error)
	Save(ctx context.Context, name string, value []byte) error
	// Delete of a name that is not kept is no error.
	Delete(ctx context.Context, name string) error
}

// Follower is a LastKnown that tells one replica what the others save.
type Follower interface {
	// Follow calls saved with everything that is kept and then with whatever is saved by anybody, in that order for each
	// name, until ctx ends.
	Follow(ctx context.Context, saved func(name string, value []byte))
}

const (
	keepTimeout = 10 * time.Second
	keepRetry   = time.Second
)

// Keeper writes to LastKnown behind everybody's back, one value at a time, so that storage that is slow or away delays
// no document. A value that cannot be written stays on the list.
type Keeper struct {
	store LastKnown
	log   *zap.Logger

	mu      sync.Mutex
	pending map[string][]byte // nil value: delete
	more    chan struct{}
}

// NewKeeper returns a Keeper that has not read or written anything yet.
func NewKeeper(store LastKnown, log *zap.Logger) *Keeper {
	return &Keeper{store: store, log: log, pending: map[string][]byte{}, more: make(chan struct{}, 1)}
}

// Load reads what is kept, trying until storage answers or ctx ends: without it a dead backend's kinds would be unknown.
func (k *Keeper) Load(ctx context.Context) (map[string][]byte, error) {
	for {
		values, err := k.loadOnce(ctx)
		if err == nil {
			return values, nil
		}
		k.log.Warn("cannot read what backends last said, trying again", zap.Error(err))
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("load what backends last said: %w", err)
		case <-time.After(keepRetry):
		}
	}
}

func (k *Keeper) loadOnce(ctx context.Context) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	return k.store.Load(ctx)
}

// Save keeps the value under the name, soon.
func (k *Keeper) Save(name string, value []byte) { k.put(name, value) }

// Forget keeps nothing under the name any more, soon.
func (k *Keeper) Forget(name string) { k.put(name, nil) }

// Follow hears what is saved by anybody until ctx ends, if the storage can tell.
func (k *Keeper) Follow(ctx context.Context, saved func(name string, value []byte)) {
	if f, ok := k.store.(Follower); ok {
		f.Follow(ctx, saved)
	}
}

func (k *Keeper) put(name string, value []byte) {
	k.mu.Lock()
	k.pending[name] = value
	k.mu.Unlock()
	select {
	case k.more <- struct{}{}:
	default:
	}
}

// Run writes until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.more:
		}
		for ctx.Err() == nil && k.flush(ctx) {
			rest(ctx, keepRetry)
		}
	}
}

// flush writes everything that is pending and reports whether something is left.
func (k *Keeper) flush(ctx context.Context) bool {
	k.mu.Lock()
	batch := k.pending
	k.pending = map[string][]byte{}
	k.mu.Unlock()
	left := false
	for name, value := range batch {
		if err := k.write(ctx, name, value); err != nil {
			k.log.Warn("cannot keep what a backend last said, trying again", zap.String("apiservice", name), zap.Error(err))
			k.putBack(name, value)
			left = true
		}
	}
	return left
}

func (k *Keeper) write(ctx context.Context, name string, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	if value == nil {
		return k.store.Delete(ctx, name)
	}
	return k.store.Save(ctx, name, value)
}

// putBack leaves alone what has been put in the meantime: it is newer.
func (k *Keeper) putBack(name string, value []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, newer := k.pending[name]; !newer {
		k.pending[name] = value
	}
}
