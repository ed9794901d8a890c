package extension

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// versions issues resourceVersions: decimal numbers that only grow. They begin at the wall clock, so that a restarted
// server issues larger ones than before and a version from an earlier life is recognised as too old, not mistaken.
type versions struct{ last atomic.Uint64 }

func newVersions(now time.Time) *versions {
	v := &versions{}
	v.last.Store(uint64(now.UnixMicro()))
	return v
}

func (v *versions) next() uint64 { return v.last.Add(1) }

func formatVersion(v uint64) string { return strconv.FormatUint(v, 10) }

// key names an object within a resource.
type key struct{ namespace, name string }

// held is an object as a view last saw it.
type held struct {
	object object
	digest [sha256.Size]byte
	// theirs is the resourceVersion that the provider gave, which clients do not see.
	theirs string
}

// snapshot is everything that a view holds at one version. It never changes.
type snapshot struct {
	items    []object // in the order of namespace and name
	version  uint64
	warnings []string // of the poll that it is from
}

// view is what one audience sees of a resource, with the history that watches need: everybody, or one caller when the
// resource is PerCaller. It learns by listing when somebody asks: a view without watchers costs nothing and owns no
// goroutine.
type view struct {
	id       uint64 // tells views apart in caches that outlive them
	resource Resource
	query    Query
	versions *versions

	// turn admits one poll at a time; its holder may write polled.
	turn   chan struct{}
	polled time.Time // when the last successful poll began

	mu      sync.Mutex // guards what follows
	objects map[key]held
	now     snapshot
	horizon uint64 // every change after it is in history
	history []change
	changed chan struct{} // closed and replaced at every change
}

func newView(s Resource, q Query, v *versions) *view {
	return &view{id: v.next(), resource: s, query: q, versions: v, turn: make(chan struct{}, 1), changed: make(chan struct{})}
}

// refresh makes the view as fresh as the time notBefore: it polls the source, unless a poll that began since then has
// already succeeded. Callers that arrive together thus share one poll, and what it warns of.
func (v *view) refresh(ctx context.Context, notBefore time.Time) (snapshot, error) {
	select {
	case v.turn <- struct{}{}:
	case <-ctx.Done():
		return snapshot{}, ctx.Err()
	}
	defer func() { <-v.turn }()
	if v.polled.IsZero() || v.polled.Before(notBefore) {
		began := time.Now()
		heard, said := withWarnings(ctx)
		items, err := v.resource.source.list(heard, v.query)
		if err != nil {
			return snapshot{}, err
		}
		next, err := digest(items, v.resource.watchable())
		if err != nil {
			return snapshot{}, err
		}
		v.replace(next, said.said())
		v.polled = began
	}
	now := v.snapshot()
	for _, text := range now.warnings {
		Warn(ctx, text)
	}
	return now, nil
}

// digest indexes items and fingerprints their content, so that equal objects are recognised whatever their Go type.
func digest(items []object, watchable bool) (map[key]held, error) {
	next := make(map[key]held, len(items))
	var raw bytes.Buffer
	encoder := json.NewEncoder(&raw)
	for _, o := range items {
		theirs := o.GetResourceVersion()
		if watchable {
			o.SetResourceVersion("") // ours to issue; o is our own copy
		}
		raw.Reset()
		if err := encoder.Encode(o); err != nil {
			return nil, fmt.Errorf("encode %q: %w", o.GetName(), err)
		}
		next[key{o.GetNamespace(), o.GetName()}] = held{object: o, digest: sha256.Sum256(raw.Bytes()), theirs: theirs}
	}
	return next, nil
}

// snapshot is what the view holds. Without a refresh before it, it may be empty.
func (v *view) snapshot() snapshot {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now
}

// lookup is one object of the view.
func (v *view) lookup(k key) (held, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h, ok := v.objects[k]
	return h, ok
}

// sorted is every object in the order that clients of a list expect.
func sorted(objects map[key]held) []object {
	items := make([]object, 0, len(objects))
	for _, h := range objects {
		items = append(items, h.object)
	}
	slices.SortFunc(items, byNamespaceAndName)
	return items
}
