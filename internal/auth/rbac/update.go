package rbac

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// With tens of thousands of bindings some change all the time, and a full compilation for each change would take a
// third of a core. So a new index is derived from the previous one and only the subjects of changed bindings are
// recompiled. Subjects are in shards to limit copying.

// shardCount must be a power of two.
const shardCount = 256

// subjectMap maps the names of users or groups to subjects. Copies share the maps, which are immutable once the index
// is in use.
type subjectMap [shardCount]map[string]*subject

var shardSeed = maphash.MakeSeed()

func shardOf(name string) int { return int(maphash.String(shardSeed, name) % shardCount) }

func (s *subjectMap) get(name string) *subject { return s[shardOf(name)][name] }

// entry returns the subject of that name, creating it if needed. It is called only while the index is built.
func (s *subjectMap) entry(name string) *subject {
	at := &s[shardOf(name)]
	if *at == nil {
		*at = make(map[string]*subject)
	}
	found := (*at)[name]
	if found == nil {
		found = &subject{}
		(*at)[name] = found
	}
	return found
}

// bindingID identifies a binding. The namespace is empty for a ClusterRoleBinding.
type bindingID struct{ namespace, name string }

func (b *Binding) id() bindingID { return bindingID{b.namespace, b.name} }

// change describes the change of a binding.
type change struct {
	// seen are all versions of the binding since the previous index.
	seen []*Binding
	// now is the current version, nil if the binding was deleted.
	now *Binding
}

// placedSubject is the location of a subject in an index.
type placedSubject struct {
	subjects *subjectMap
	name     string
}

// update returns an index with the same roles and the changed bindings.
func (x *index) update(changes map[bindingID]change) *index {
	next := *x
	touched := make(map[placedSubject][]*Binding) // the value is the list of new bindings
	for _, c := range changes {
		for _, b := range append(slices.Clip(c.seen), c.now) {
			if b == nil {
				continue
			}
			for i := range b.subjects {
				all, name := next.place(&b.subjects[i], b.namespace)
				if all == nil {
					continue
				}
				at := placedSubject{all, name}
				if b == c.now && !slices.Contains(touched[at], b) {
					touched[at] = append(touched[at], b)
				} else if _, known := touched[at]; !known {
					touched[at] = nil
				}
			}
		}
	}
	copied := make(map[*map[string]*subject]bool) // shards
	for at, added := range touched {
		shard := &at.subjects[shardOf(at.name)]
		if !copied[shard] {
			copied[shard] = true
			if *shard = maps.Clone(*shard); *shard == nil {
				*shard = make(map[string]*subject)
			}
		}
		var by []*Binding
		if before := (*shard)[at.name]; before != nil {
			by = slices.DeleteFunc(slices.Clone(before.bindings), func(b *Binding) bool { _, changed := changes[b.id()]; return changed })
		}
		if by = append(by, added...); len(by) == 0 {
			delete(*shard, at.name)
			continue
		}
		(*shard)[at.name] = next.compileSubject(at, by)
	}
	return &next
}

// compileSubject compiles a subject from the bindings that name it.
func (x *index) compileSubject(at placedSubject, by []*Binding) *subject {
	made := &subject{}
	if len(by) > 1 {
		made.bindings = make([]*Binding, 0, len(by))
	}
	for _, b := range by {
		for i := range b.subjects {
			if all, name := x.place(&b.subjects[i], b.namespace); all == at.subjects && name == at.name {
				x.grant(made, b, i)
			}
		}
	}
	made.prepare(x.roles.targets)
	return made
}

// pending collects changes that are not yet in an index.
type pending struct {
	signal chan struct{} // holds one element while there are changes

	mu       sync.Mutex // guards the fields below
	roles    bool       // a role changed
	bindings map[bindingID][]*Binding
}

func newPending() *pending {
	return &pending{signal: make(chan struct{}, 1), bindings: make(map[bindingID][]*Binding)}
}

// handler returns an event handler that records changes.
func (p *pending) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { p.note(obj) },
		UpdateFunc: func(before, after any) {
			if !sameVersion(before, after) {
				p.note(before, after)
			}
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			p.note(obj)
		},
	}
}

// sameVersion reports whether an update contains no change. Informers repeat their objects on resync.
func sameVersion(before, after any) bool {
	a, errA := apimeta.Accessor(before)
	b, errB := apimeta.Accessor(after)
	return errA == nil && errB == nil && a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion()
}

func (p *pending) note(objects ...any) {
	p.mu.Lock()
	for _, obj := range objects {
		b, ok := TransformBinding(obj).(*Binding)
		if !ok {
			p.roles = true
			continue
		}
		p.bindings[b.id()] = append(p.bindings[b.id()], b)
	}
	p.mu.Unlock()
	select {
	case p.signal <- struct{}{}:
	default:
	}
}

// take returns the changes since the previous call.
func (p *pending) take() (roles bool, bindings map[bindingID][]*Binding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	roles, bindings = p.roles, p.bindings
	p.roles, p.bindings = false, make(map[bindingID][]*Binding)
	return roles, bindings
}

// changesOf looks up the current versions of changed bindings. The informer's store may be newer than its events, and
// an older event must not restore a revoked right.
func changesOf(informers Informers, seen map[bindingID][]*Binding) map[bindingID]change {
	changes := make(map[bindingID]change, len(seen))
	for id, all := range seen {
		key, store := id.namespace+"/"+id.name, informers.RoleBindings.Informer().GetStore()
		if id.namespace == "" {
			key, store = id.name, informers.ClusterRoleBindings.Informer().GetStore()
		}
		c := change{seen: all}
		if obj, ok, err := store.GetByKey(key); err == nil && ok {
			c.now, _ = TransformBinding(obj).(*Binding)
		}
		changes[id] = c
	}
	return changes
}
