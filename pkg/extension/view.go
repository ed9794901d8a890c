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

// versions issues resourceVersions, which are increasing decimal numbers. They start at the wall clock in microseconds, so
// that a restarted server issues larger ones and recognizes a version of an earlier process as too old.
type versions struct{ last atomic.Uint64 }

func newVersions(now time.Time) *versions {
	v := &versions{}
	v.last.Store(uint64(now.UnixMicro()))
	return v
}

func (v *versions) next() uint64 { return v.last.Add(1) }

func formatVersion(v uint64) string { return strconv.FormatUint(v, 10) }

// key identifies an object of a resource.
type key struct{ namespace, name string }

// entry is an object in a view.
type entry struct {
	object object
	digest [sha256.Size]byte
	// theirs is the resourceVersion that the provider set. Clients do not see it.
	theirs string
}

// snapshot is the content of a view at one version. It is immutable.
type snapshot struct {
	items    []object // sorted by namespace and name
	version  uint64
	warnings []string // from the poll that produced the snapshot
}

// view is the content of a resource for one audience, with the history that watches need. The audience is every caller, or
// one caller if the resource is PerCaller. A view lists the source on demand: without watches it costs nothing, and it has no
// goroutine.
type view struct {
	id       uint64 // unique, for caches that outlive the view
	resource Resource
	query    Query
	versions *versions

	// turn serializes polls. Its holder may write polled.
	turn   chan struct{}
	polled time.Time // start of the last successful poll

	mu        sync.Mutex // guards the fields below
	objects   map[key]entry
	now       snapshot
	compacted uint64 // history contains every change after this version
	history   []change
	changed   chan struct{} // closed and replaced at every change
	// told is closed when the source has reported a change since the last successful poll. It is nil if the source reports
	// none.
	told <-chan struct{}
}

func newView(s Resource, q Query, v *versions) *view {
	return &view{id: v.next(), resource: s, query: q, versions: v, turn: make(chan struct{}, 1), changed: make(chan struct{})}
}

// refresh polls the source, unless a poll that started at or after notBefore has succeeded. Concurrent callers therefore
// share one poll and its warnings.
func (v *view) refresh(ctx context.Context, notBefore time.Time) (snapshot, error) {
	return v.pollUnless(ctx, func() bool {
		if v.polled.IsZero() {
			return false
		}
		return !v.polled.Before(notBefore) || v.resource.tellsAll && !closed(v.signal())
	})
}

// refreshTold polls the source after told was closed, unless another caller has polled since it obtained told.
func (v *view) refreshTold(ctx context.Context, told <-chan struct{}) error {
	_, err := v.pollUnless(ctx, func() bool { return v.signal() != told })
	return err
}

// pollUnless polls the source unless fresh returns true. fresh is called while no other poll is running.
func (v *view) pollUnless(ctx context.Context, fresh func() bool) (snapshot, error) {
	select {
	case v.turn <- struct{}{}:
	case <-ctx.Done():
		return snapshot{}, ctx.Err()
	}
	defer func() { <-v.turn }()
	if !fresh() {
		began := time.Now()
		told := v.resource.changed() // before the list: a change during the list closes this channel
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

// signal returns a channel that is closed when the source has changed since the last poll.
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

// digest indexes items and hashes their content, so that equal objects are recognized regardless of their Go type.
func digest(items []object, watchable bool) (map[key]entry, error) {
	next := make(map[key]entry, len(items))
	var raw bytes.Buffer
	encoder := json.NewEncoder(&raw)
	for _, o := range items {
		theirs := o.GetResourceVersion()
		if watchable {
			o.SetResourceVersion("") // the host issues versions; o is a copy
		}
		raw.Reset()
		if err := encoder.Encode(o); err != nil {
			return nil, fmt.Errorf("encode %q: %w", o.GetName(), err)
		}
		next[key{o.GetNamespace(), o.GetName()}] = entry{object: o, digest: sha256.Sum256(raw.Bytes()), theirs: theirs}
	}
	return next, nil
}

// snapshot returns the content of the view. It is empty before the first refresh.
func (v *view) snapshot() snapshot {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now
}

// lookup returns one object of the view.
func (v *view) lookup(k key) (entry, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h, ok := v.objects[k]
	return h, ok
}

// sorted returns the objects in the order of a list.
func sorted(objects map[key]entry) []object {
	items := make([]object, 0, len(objects))
	for _, h := range objects {
		items = append(items, h.object)
	}
	slices.SortFunc(items, byNamespaceAndName)
	return items
}

// historyLimit limits the history of a view. A watch that falls further behind gets a 410 and must relist.
const historyLimit = 4096

// errExpired reports a resourceVersion that is older than the history of a view.
var errExpired = errors.New("resource version too old")

// change is the difference of one object between two polls. current is nil for a deletion, previous for an addition. For a
// deletion, previous carries the version of the deletion, as watchers expect.
type change struct {
	version           uint64
	current, previous object
}

// replace replaces the content by next and adds the differences to the history. The source closes told at its next change.
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
		// The initial content is state, not a change.
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

// stamp returns the resourceVersion that clients see. If the resource is not watchable, it is the provider's version.
func (v *view) stamp(version uint64, h entry) string {
	if v.resource.watchable() {
		return formatVersion(version)
	}
	return h.theirs
}

// differing returns the keys of objects that differ, in the order of their changes.
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

// since returns the changes after version, the current version, and a channel that is closed at the next change. It returns
// errExpired if the history no longer contains all changes since version.
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

// viewLimit limits the views of a PerCaller resource. Evicting a view costs its watchers a 410 at their next request.
const viewLimit = 1024

// views contains the views of one resource: one shared view, or one for each caller.
type views struct {
	resource Resource
	versions *versions

	mu     sync.Mutex // makes lookup and creation atomic
	byUser *lru.Cache[[sha256.Size]byte, *view]
}

func newViews(s Resource, v *versions) *views {
	limit := 1
	if s.perCaller {
		limit = viewLimit
	}
	cache, err := lru.New[[sha256.Size]byte, *view](limit)
	if err != nil {
		panic("extension: " + err.Error()) // fails only for a size below one
	}
	return &views{resource: s, versions: v, byUser: cache}
}

// viewFor returns the view for caller.
func (vs *views) viewFor(caller user.Info) *view {
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

// audience returns an ID for the attributes of a caller that a provider can see. Two requests share a view only if name, uid,
// groups and extra are equal.
func audience(u user.Info) [sha256.Size]byte {
	// Marshaling strings cannot fail, and quoting distinguishes ("a","b") from ("ab","").
	raw, _ := json.Marshal([]any{u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra()})
	return sha256.Sum256(raw)
}
