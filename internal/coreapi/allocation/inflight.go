package allocation

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ErrFenced is returned if a repair has ended the write because its process counted as dead. Nothing was stored.
var ErrFenced = errors.New("this server lost its lease in etcd while it wrote; nothing was stored, try again")

// InFlight stores the writes in progress, for all replicas. Each write has an entry in etcd from before its first claim until
// its end. A claim without a Service is in use as long as its owner has an entry. A write fails if its entry was removed (see
// Fence), so removing the entries of a process that is or seems dead ends its writes.
type InFlight interface {
	// Begin creates an entry and returns its key. The key is valid for End even after an error.
	Begin(ctx context.Context, owner Owner) (key string, err error)
	// End removes an entry. It returns no error if the entry does not exist.
	End(ctx context.Context, key string) error
	// All reads all current entries from etcd.
	All(ctx context.Context) ([]Entry, error)
}

// Entry is a write in progress.
type Entry struct {
	Key string
	// Owner is empty if the entry cannot be read. The entry may then belong to any Service.
	Owner types.NamespacedName
	// Alive reports whether the process of the write is alive.
	Alive bool
}

// Fence returns the key that must exist for the write of ctx to be stored, or "" if it depends on no key.
func Fence(ctx context.Context) string {
	if t := FromContext(ctx); t != nil {
		return t.entry
	}
	return ""
}

// beginEntry creates the entry of the transaction, before its first claim.
func (t *Transaction) beginEntry(ctx context.Context) error {
	if t.entry != "" {
		return nil
	}
	key, err := t.cfg.InFlight.Begin(ctx, t.owner)
	t.entry = key
	return err
}

// endEntry removes the entry. Afterwards no write of the transaction can be stored.
func (t *Transaction) endEntry(ctx context.Context) error {
	if t.entry == "" {
		return nil
	}
	return t.cfg.InFlight.End(ctx, t.entry)
}

// ownersWriting returns the owners of writes in progress. anybody is true if an entry cannot be read, so that any Service may
// be an owner. It ends writes of dead processes, and writes that exceed the maximum duration of a request.
func (r *Repairer) ownersWriting(ctx context.Context) (pending map[types.NamespacedName]bool, anybody bool, err error) {
	entries, err := r.allocator.cfg.InFlight.All(ctx)
	if err != nil {
		return nil, false, err
	}
	pending = map[types.NamespacedName]bool{}
	still := map[string]time.Time{}
	for _, e := range entries {
		first, seen := r.entries[e.Key]
		if !seen {
			first = r.now()
		}
		if e.Alive && r.now().Sub(first) < r.grace {
			still[e.Key], pending[e.Owner] = first, true
			anybody = anybody || e.Owner == types.NamespacedName{}
			continue
		}
		if err := r.allocator.cfg.InFlight.End(ctx, e.Key); err != nil {
			return nil, false, err
		}
	}
	r.entries = still
	return pending, anybody, nil
}

// Abandoned reports whether there are writes of dead processes, which Repair ends.
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
