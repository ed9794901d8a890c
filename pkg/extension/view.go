package extension

import (
	"bytes"
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

	lru "github.com/hashicorp/golang-lru/v2"
	"k8s.io/apiserver/pkg/authentication/user"
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

// entry is an object as a view last saw it.
type entry struct {
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

	mu        sync.Mutex // guards what follows
	objects   map[key]entry
	now       snapshot
	compacted uint64 // every change after it is in history
	history   []change
	changed   chan struct{} // closed and replaced at every change
	// told is closed when the source says that it has changed since the last successful poll; nil when it never says so.
	told <-chan struct{}
}

func newView(s Resource, q Query, v *versions) *view {
	return &view{id: v.next(), resource: s, query: q, versions: v, turn: make(chan struct{}, 1), changed: make(chan struct{})}
}

// refresh makes the view as fresh as the time notBefore: it polls the source, unless a poll that began since then has
// already succeeded. Callers that arrive together thus share one poll, and what it warns of.
func (v *view) refresh(ctx context.Context, notBefore time.Time) (snapshot, error) {
	return v.pollUnless(ctx, func() bool {
		if v.polled.IsZero() {
			return false
		}
		return !v.polled.Before(notBefore) || v.resource.tellsAll && !closed(v.signal())
	})
}

// refreshTold polls because told was closed, unless somebody has polled since told was handed out.
func (v *view) refreshTold(ctx context.Context, told <-chan struct{}) error {
	_, err := v.pollUnless(ctx, func() bool { return v.signal() != told })
	return err
}

// pollUnless polls the source unless fresh, which is asked when no other poll is under way.
func (v *view) pollUnless(ctx context.Context, fresh func() bool) (snapshot, error) {
	select {
	case v.turn <- struct{}{}:
	case <-ctx.Done():
		return snapshot{}, ctx.Err()
	}
	defer func() { <-v.turn }()
	if !fresh() {
		began := time.Now()
		told := v.resource.changed() // before listing: a change in the middle of it closes this channel
		heard, said := withWarnings(ctx)
		items, err := v.resource.source.list(heard, v.query)
		if err != nil {
			return snapshot{}, err
		}
		next, err := digest(items, v.resource.watchable())
		if err != nil {
			return snapshot{}, err
		}
		v.replace(next, said.all(), told)
		v.polled = began
	}
	now := v.snapshot()
	for _, text := range now.warnings {
		Warn(ctx, text)
	}
	return now, nil
}

// signal is closed when the source has changed since the last poll.
func (v *view) signal() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.told
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// digest indexes items and fingerprints their content, so that equal objects are recognised whatever their Go type.
func digest(items []object, watchable bool) (map[key]entry, error) {
	next := make(map[key]entry, len(items))
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
		next[key{o.GetNamespace(), o.GetName()}] = entry{object: o, digest: sha256.Sum256(raw.Bytes()), theirs: theirs}
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
func (v *view) lookup(k key) (entry, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h, ok := v.objects[k]
	return h, ok
}

// sorted is every object in the order that clients of a list expect.
func sorted(objects map[key]entry) []object {
	items := make([]object, 0, len(objects))
	for _, h := range objects {
		items = append(items, h.object)
	}
	slices.SortFunc(items, byNamespaceAndName)
	return items
}

// historyLimit bounds the changes that a view remembers. A watch that falls further behind is told 410 and lists anew.
const historyLimit = 4096

// errExpired says that a resourceVersion is older than what a view remembers.
var errExpired = errors.New("resource version too old")

// change is the difference of one object between two polls. current is nil when it is gone; previous is nil when it
// is new. For a deletion, previous carries the version of the deletion, as watchers expect.
type change struct {
	version           uint64
	current, previous object
}

// replace makes next the content, and changes of the differences. The source closes told when it has changed again.
func (v *view) replace(next map[key]entry, warned []string, told <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.told = told
	first, version := v.objects == nil, v.now.version
	different := differing(v.objects, next)
	for _, k := range different {
		version = v.versions.next()
		old, existed := v.objects[k]
		now, exists := next[k]
		c := change{version: version}
		if exists {
			now.object = v.resource.source.stamped(now.object, v.stamp(version, now))
			next[k] = now
			c.current = now.object
		}
		if existed {
			c.previous = v.resource.source.stamped(old.object, v.stamp(version, old))
		}
		if v.resource.watchable() {
			v.history = append(v.history, c)
		}
	}
	for k, old := range v.objects {
		if now, ok := next[k]; ok && now.digest == old.digest {
			now.object = old.object
			next[k] = now
		}
	}
	v.objects = next
	v.now.warnings = warned
	if !first && len(different) == 0 {
		return
	}
	v.now.items = sorted(next)
	v.now.version = version
	if first {
		// What was there at first is state, not change.
		if version == 0 {
			v.now.version = v.versions.next()
		}
		v.history, v.compacted = nil, v.now.version
	}
	if excess := len(v.history) - historyLimit; excess > 0 {
		v.compacted = v.history[excess-1].version
		v.history = slices.Delete(v.history, 0, excess)
	}
	close(v.changed)
	v.changed = make(chan struct{})
}

// stamp is the resourceVersion that clients see. Of a resource that nobody can watch it is the provider's own.
func (v *view) stamp(version uint64, h entry) string {
	if v.resource.watchable() {
		return formatVersion(version)
	}
	return h.theirs
}

// differing lists the keys whose content differs, in the order in which their changes are told.
func differing(old, next map[key]entry) []key {
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

// since returns the changes after version, the version reached, and a channel that is closed at the next change.
// errExpired: the view no longer knows what happened since.
func (v *view) since(version uint64) ([]change, uint64, <-chan struct{}, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if version < v.compacted {
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
	return slices.Clone(v.history[at:]), v.now.version, v.changed, nil
}

// viewLimit bounds the views of one PerCaller resource. Evicting one costs its watchers a 410 on their next request.
const viewLimit = 1024

// views holds the views of one resource: one for everybody, or one for each caller.
type views struct {
	resource Resource
	versions *versions

	mu     sync.Mutex // makes lookup and creation one step
	byUser *lru.Cache[[sha256.Size]byte, *view]
}

func newViews(s Resource, v *versions) *views {
	limit := 1
	if s.perCaller {
		limit = viewLimit
	}
	cache, err := lru.New[[sha256.Size]byte, *view](limit)
	if err != nil {
		panic("extension: " + err.Error()) // only for a limit below one
	}
	return &views{resource: s, versions: v, byUser: cache}
}

// of is the view that caller may see.
func (vs *views) of(caller user.Info) *view {
	q := everything()
	var id [sha256.Size]byte
	if vs.resource.perCaller {
		q.User = caller
		id = audience(caller)
	}
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if v, ok := vs.byUser.Get(id); ok {
		return v
	}
	v := newView(vs.resource, q, vs.versions)
	vs.byUser.Add(id, v)
	return v
}

// audience tells callers apart by everything that a provider can see of them: two requests share a view only when
// name, uid, groups and extra are all the same.
func audience(u user.Info) [sha256.Size]byte {
	// Marshalling plain strings cannot fail; quoting keeps ("a","b") and ("ab","") apart.
	raw, _ := json.Marshal([]any{u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra()})
	return sha256.Sum256(raw)
}
