package extension

import (
	"errors"
	"slices"
	"strings"
)

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

// replace makes next the content, and changes of the differences.
func (v *view) replace(next map[key]held, warned []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
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
		v.history, v.horizon = nil, v.now.version
	}
	if excess := len(v.history) - historyLimit; excess > 0 {
		v.horizon = v.history[excess-1].version
		v.history = slices.Delete(v.history, 0, excess)
	}
	close(v.changed)
	v.changed = make(chan struct{})
}

// stamp is the resourceVersion that clients see. Of a resource that nobody can watch it is the provider's own.
func (v *view) stamp(version uint64, h held) string {
	if v.resource.watchable() {
		return formatVersion(version)
	}
	return h.theirs
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
	return slices.Clone(v.history[at:]), v.now.version, v.changed, nil
}
