package rbac

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// Where there are tens of thousands of bindings, some change all the time, and compiling all of them for each would take a third
// of a core. So an index is made of the one before: only the subjects that changed bindings name are made anew. They are in shards,
// so that little is copied.

// shardCount is a power of two.
const shardCount = 256

// subjectMap is users or groups by name. A copy shares the maps, which are not changed once the index is in use.
type subjectMap [shardCount]map[string]*subject

var shardSeed = maphash.MakeSeed()

func shardOf(name string) int { return int(maphash.String(shardSeed, name) % shardCount) }

func (s *subjectMap) get(name string) *subject { return s[shardOf(name)][name] }

// entry is get for an index that is being made.
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

// bindingID tells bindings apart. Without a namespace it is a ClusterRoleBinding.
type bindingID struct{ namespace, name string }

func (b *Binding) id() bindingID { return bindingID{b.namespace, b.name} }

// change is what became of one binding.
type change struct {
	// seen are all that it was since the index was made.
	seen []*Binding
	// now is what it is, nil for nothing.
	now *Binding
}

// placedSubject is a subject where its grants are kept.
type placedSubject struct {
	of   *subjectMap
	name string
}

// update returns the index of the same roles and of changed bindings.
func (x *index) update(changes map[bindingID]change) *index {
	next := *x
	touched := make(map[placedSubject][]*Binding) // with the bindings that are new
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
		shard := &at.of[shardOf(at.name)]
		if !copied[shard] {
			copied[shard] = true
			if *shard = maps.Clone(*shard); *shard == nil {
				*shard = make(map[string]*subject)
			}
		}
		var by []*Binding
		if before := (*shard)[at.name]; before != nil {
			by = slices.DeleteFunc(slices.Clone(before.by), func(b *Binding) bool { _, changed := changes[b.id()]; return changed })
		}
		if by = append(by, added...); len(by) == 0 {
			delete(*shard, at.name)
			continue
		}
		(*shard)[at.name] = next.compileSubject(at, by)
	}
	return &next
}

// compileSubject makes a subject of the bindings that name it.
func (x *index) compileSubject(at placedSubject, by []*Binding) *subject {
	made := &subject{}
	if len(by) > 1 {
		made.by = make([]*Binding, 0, len(by))
	}
	for _, b := range by {
		for i := range b.subjects {
			if all, name := x.place(&b.subjects[i], b.namespace); all == at.of && name == at.name {
				x.grant(made, b, i)
			}
		}
	}
	made.prepare(x.roles.targets)
	return made
}

// pending are changes that no index has yet.
type pending struct {
	signal chan struct{} // holds one while there are some

	mu       sync.Mutex // guards what follows
	roles    bool       // one of the roles changed
	bindings map[bindingID][]*Binding
}

func newPending() *pending {
	return &pending{signal: make(chan struct{}, 1), bindings: make(map[bindingID][]*Binding)}
}

// handler notes the changes that an informer tells of.
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

// sameVersion reports whether an update is none: informers repeat what they hold now and then.
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

// take returns what changed since it was called last.
func (p *pending) take() (roles bool, bindings map[bindingID][]*Binding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	roles, bindings = p.roles, p.bindings
	p.roles, p.bindings = false, make(map[bindingID][]*Binding)
	return roles, bindings
}

// changesOf looks up what became of bindings. The informer may be ahead of what it told: a right that was revoked must not come
// back because an older event is dealt with.
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
