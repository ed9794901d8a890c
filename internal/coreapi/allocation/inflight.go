package allocation

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ErrFenced says that a write was given up by whoever repairs: its process counted as dead. Nothing was stored.
var ErrFenced = errors.New("this server lost its lease in etcd while it wrote; nothing was stored, try again")

// InFlight keeps the writes that are under way, for all replicas: each has an entry in etcd from before its first claim until
// its end. A claim without a Service is in use as long as its owner has an entry. A write whose entry was removed fails (see
// Fence), so that to remove the entry of a process that has ended, or only seems to have, is to end its write.
type InFlight interface {
	// Begin makes an entry, whose key it returns. The key is good to end the entry also after an error.
	Begin(ctx context.Context, owner Owner) (key string, err error)
	// End removes an entry. One that does not exist is no error.
	End(ctx context.Context, key string) error
	// All reads all entries as they are now.
	All(ctx context.Context) ([]Entry, error)
}

// Entry is a write that is under way.
type Entry struct {
	Key   string
	Owner types.NamespacedName
	// Alive says whether the process lives whose write it is.
	Alive bool
}

// Fence is the key that has to exist for a write to be stored; empty: the write depends on none.
func Fence(ctx context.Context) string {
	if t := Of(ctx); t != nil {
		return t.entry
	}
	return ""
}

// enter makes the entry of the transaction, before its first claim.
func (t *Transaction) enter(ctx context.Context) error {
	if t.entry != "" {
		return nil
	}
	key, err := t.cfg.InFlight.Begin(ctx, t.owner)
	t.entry = key
	return err
}

// leave removes the entry. When it is gone nothing that the transaction wrote can be stored any more.
func (t *Transaction) leave(ctx context.Context) error {
	if t.entry == "" {
		return nil
	}
	return t.cfg.InFlight.End(ctx, t.entry)
}

// pending are the owners of writes that are under way. Writes of processes that have ended are ended for them, and so are
// those that have lasted for longer than any request may.
func (r *Repairer) pending(ctx context.Context) (map[types.NamespacedName]bool, error) {
	entries, err := r.allocator.cfg.InFlight.All(ctx)
	if err != nil {
		return nil, err
	}
	pending, still := map[types.NamespacedName]bool{}, map[string]time.Time{}
	for _, e := range entries {
		first, seen := r.entries[e.Key]
		if !seen {
			first = r.now()
		}
		if e.Alive && r.now().Sub(first) < r.grace {
			still[e.Key], pending[e.Owner] = first, true
			continue
		}
		if err := r.allocator.cfg.InFlight.End(ctx, e.Key); err != nil {
			return nil, err
		}
	}
	r.entries = still
	return pending, nil
}

// Abandoned says whether there are writes of processes that have ended, for Repair to look after.
func (r *Repairer) Abandoned(ctx context.Context) (bool, error) {
	entries, err := r.allocator.cfg.InFlight.All(ctx)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if !e.Alive {
			return true, nil
		}
	}
	return false, nil
}
