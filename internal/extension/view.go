package extension

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// historyLimit bounds the changes that a view remembers. A watch that falls further behind is told 410 and lists anew.
const historyLimit = 4096

// errExpired says that a resourceVersion is older than what a view remembers.
var errExpired = errors.New("resource version too old")

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
}

// change is the difference of one object between two polls. current is nil when it is gone; previous is nil when it
// is new. For a deletion, previous carries the version of the deletion, as watchers expect.
type change struct {
	version           uint64
	current, previous object
}

// view is what one audience sees of a watchable resource, with the history that watches need: everybody, or one
// caller when the resource is PerCaller. It learns by listing when somebody asks: a view without watchers costs nothing
// and owns no goroutine.
type view struct {
	resource Resource
	query    Query
	versions *versions

	// turn admits one poll at a time; its holder may write polled.
	turn   chan struct{}
	polled time.Time // when the last successful poll began

	mu      sync.Mutex // guards what follows
	objects map[key]held
	version uint64 // of the newest change
	horizon uint64 // every change after it is in history
	history []change
	changed chan struct{} // closed and replaced at every change
}

func newView(s Resource, q Query, v *versions) *view {
	return &view{resource: s, query: q, versions: v, turn: make(chan struct{}, 1), changed: make(chan struct{})}
}

// refresh makes the view as fresh as the time notBefore: it polls the source, unless a poll that began since then has
// already succeeded. Callers that arrive together thus share one poll.
func (v *view) refresh(ctx context.Context, notBefore time.Time) error {
	select {
	case v.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-v.turn }()
	if !v.polled.Before(notBefore) && !v.polled.IsZero() {
		return nil
	}
	began := time.Now()
	items, err := v.resource.source.list(ctx, v.query)
	if err != nil {
		return err
	}
	next, err := digest(items)
	if err != nil {
		return err
	}
	v.replace(next)
	v.polled = began
	return nil
}

// digest indexes items and fingerprints their content, so that equal objects are recognised whatever their Go type.
func digest(items []object) (map[key]held, error) {
	next := make(map[key]held, len(items))
	for _, o := range items {
		o.SetResourceVersion("") // ours to issue; o is our own copy
		raw, err := json.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("encode %q: %w", o.GetName(), err)
		}
		next[key{o.GetNamespace(), o.GetName()}] = held{object: o, digest: sha256.Sum256(raw)}
	}
	return next, nil
}

// replace makes next the content, and changes of the differences.
func (v *view) replace(next map[key]held) {
	v.mu.Lock()
	defer v.mu.Unlock()
	first := v.objects == nil
	before := v.version
	for _, k := range differing(v.objects, next) {
		v.version = v.versions.next()
		old, existed := v.objects[k]
		now, exists := next[k]
		c := change{version: v.version}
		if exists {
			now.object = v.resource.source.stamped(now.object, formatVersion(v.version))
			next[k] = now
			c.current = now.object
		}
		if existed {
			c.previous = v.resource.source.stamped(old.object, formatVersion(v.version))
		}
		v.history = append(v.history, c)
	}
	for k, old := range v.objects {
		if now, ok := next[k]; ok && now.digest == old.digest {
			next[k] = old
		}
	}
	v.objects = next
	if first {
		// What was there at first is state, not change.
		if v.version == 0 {
			v.version = v.versions.next()
		}
		v.history, v.horizon = nil, v.version
	}
	if excess := len(v.history) - historyLimit; excess > 0 {
		v.horizon = v.history[excess-1].version
		v.history = slices.Delete(v.history, 0, excess)
	}
	if v.version != before {
		close(v.changed)
		v.changed = make(chan struct{})
	}
}

// differing lists the keys whose content differs, in the order in which their changes are told.
func differing(old, next map[key]held) []key {
	var keys []key
	for k, now := range next {
		if before, ok := old[k]; !ok || before.digest != now.digest {
			keys = append(keys, k)
		}
	}
	for k := range old {
		if _, ok := next[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b key) int {
		if c := strings.Compare(a.namespace, b.namespace); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	return keys
}

// content is every object and the version that the whole has. Without a refresh before it, it may be empty.
func (v *view) content() ([]object, uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	items := make([]object, 0, len(v.objects))
	for _, h := range v.objects {
		items = append(items, h.object)
	}
	return items, v.version
}

// since returns the changes after version, the version reached, and a channel that is closed at the next change.
// errExpired: the view no longer knows what happened since.
func (v *view) since(version uint64) ([]change, uint64, <-chan struct{}, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if version < v.horizon {
		return nil, 0, nil, errExpired
	}
	at, _ := slices.BinarySearchFunc(v.history, version+1, func(c change, want uint64) int {
		switch {
		case c.version < want:
			return -1
		case c.version > want:
			return 1
		}
		return 0
	})
	return slices.Clone(v.history[at:]), v.version, v.changed, nil
}

// lookup is one object of the view.
func (v *view) lookup(k key) (object, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h, ok := v.objects[k]
	return h.object, ok
}
