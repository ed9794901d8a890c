package discovery

import (
	"context"
	"encoding/json"
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

const (
	keepTimeout = 10 * time.Second
	keepRetry   = time.Second
)

// keeper writes to LastKnown behind everybody's back, one value at a time, so that storage that is slow or away delays
// no document. A value that cannot be written stays on the list.
type keeper struct {
	store LastKnown
	log   *zap.Logger

	mu      sync.Mutex
	pending map[string][]byte // nil value: delete
	more    chan struct{}
}

func newKeeper(store LastKnown, log *zap.Logger) *keeper {
	return &keeper{store: store, log: log, pending: map[string][]byte{}, more: make(chan struct{}, 1)}
}

// load reads what is kept, trying until storage answers or ctx ends: without it a dead backend's kinds would be unknown.
func (k *keeper) load(ctx context.Context) (map[string]*known, error) {
	for {
		values, err := k.loadOnce(ctx)
		if err == nil {
			return k.decode(values), nil
		}
		k.log.Warn("cannot read last-known discovery, trying again", zap.Error(err))
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("load last-known discovery: %w", err)
		case <-time.After(keepRetry):
		}
	}
}

func (k *keeper) loadOnce(ctx context.Context) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	return k.store.Load(ctx)
}

// decode leaves out what it cannot read: the backend will say it again.
func (k *keeper) decode(values map[string][]byte) map[string]*known {
	all := map[string]*known{}
	for name, value := range values {
		last, err := decodeKnown(value)
		if err != nil {
			k.log.Warn("ignoring unreadable last-known discovery", zap.String("apiservice", name), zap.Error(err))
			continue
		}
		all[name] = last
	}
	return all
}

func decodeKnown(value []byte) (*known, error) {
	last := &known{}
	if err := json.Unmarshal(value, last); err != nil {
		return nil, err
	}
	if err := check(last.Resources); err != nil {
		return nil, err
	}
	last.Resources = fill(last.Resources)
	return last, nil
}

func (k *keeper) save(name string, last *known) {
	value, err := json.Marshal(last)
	if err != nil {
		k.log.Error("cannot encode last-known discovery", zap.String("apiservice", name), zap.Error(err))
		return
	}
	k.put(name, value)
}

func (k *keeper) forget(name string) { k.put(name, nil) }

func (k *keeper) put(name string, value []byte) {
	k.mu.Lock()
	k.pending[name] = value
	k.mu.Unlock()
	select {
	case k.more <- struct{}{}:
	default:
	}
}

// run writes until ctx ends.
func (k *keeper) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.more:
		}
		for ctx.Err() == nil && k.flush(ctx) {
			sleep(ctx, keepRetry)
		}
	}
}

// flush writes everything that is pending and reports whether something is left.
func (k *keeper) flush(ctx context.Context) bool {
	k.mu.Lock()
	batch := k.pending
	k.pending = map[string][]byte{}
	k.mu.Unlock()
	left := false
	for name, value := range batch {
		if err := k.write(ctx, name, value); err != nil {
			k.log.Warn("cannot keep last-known discovery, trying again", zap.String("apiservice", name), zap.Error(err))
			k.putBack(name, value)
			left = true
		}
	}
	return left
}

func (k *keeper) write(ctx context.Context, name string, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	if value == nil {
		return k.store.Delete(ctx, name)
	}
	return k.store.Save(ctx, name, value)
}

// putBack leaves alone what has been put in the meantime: it is newer.
func (k *keeper) putBack(name string, value []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, newer := k.pending[name]; !newer {
		k.pending[name] = value
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
