package garbage

import (
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// owedPatience is how long an object with an owner that is not in the graph waits before it is looked at: owners and
	// dependents come by different watches, and at a start everything comes at once.
	owedPatience = 2 * time.Second
	// orphanPatience lets the watches bring what was created just before its owner was deleted.
	orphanPatience = time.Second
)

// key names an object in the graph.
type key struct {
	resource *resource
	uid      types.UID
}

// resource is one resource and every object of it that its monitor knows.
type resource struct {
	schema.GroupResource
	namespaced bool
	// since is when it was first known.
	since time.Time

	// The graph's mutex guards what follows.
	version string // through which it is watched
	local   bool
	synced  bool // everything has been seen once, and can be believed
	round   uint32
	nodes   map[types.UID]*node
}

func (r *resource) gvr() schema.GroupVersionResource { return r.WithVersion(r.version) }

// node is what is remembered of one object. Its strings are shared where many objects have the same.
type node struct {
	resource        *resource
	uid             types.UID
	namespace, name string
	owners          []owner
	round           uint32
	// waits: it is being deleted and the finalizer says what for.
	foreground, orphan bool
}

type owner struct {
	uid    types.UID
	blocks bool
}

func (n *node) key() key { return key{n.resource, n.uid} }

// graph is who owns whom. Its methods are called by monitors and workers alike.
type graph struct {
	// wake asks for a look at an object after a while. It must not block nor call back.
	wake func(k key, after time.Duration)
	// buried is told of objects of local resources that a watch saw end.
	buried func(types.UID)

	mu         sync.Mutex // guards what follows, nodes included
	resources  map[schema.GroupResource]*resource
	dependents map[types.UID]map[*node]struct{}
	words      map[string]string
}

func newGraph(wake func(key, time.Duration), buried func(types.UID)) *graph {
	return &graph{
		wake: wake, buried: buried, resources: map[schema.GroupResource]*resource{},
		dependents: map[types.UID]map[*node]struct{}{}, words: map[string]string{},
	}
}

// begin starts a list of everything; settle ends it and forgets what was not in it.
func (g *graph) begin(r *resource) uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.round++
	return r.round
}

func (g *graph) settle(r *resource, round uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range r.nodes {
		if n.round != round {
			g.remove(n)
		}
	}
	r.synced = r.local
}

// complete is told when a list and the watch after it can be believed.
func (g *graph) complete(r *resource) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.synced = true
}

// observe takes in an object as a list or a watch showed it.
func (g *graph) observe(r *resource, o *metav1.PartialObjectMetadata) {
	if o.UID == "" {
		return // what has no identity is not stored, and can neither own nor be owned
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resources[r.GroupResource] != r {
		return // the last word of a monitor that was dropped
	}
	before := r.nodes[o.UID]
	now := g.node(r, o)
	r.nodes[o.UID] = now
	g.index(before, now)
	g.react(before, now)
}

func (g *graph) node(r *resource, o *metav1.PartialObjectMetadata) *node {
	n := &node{resource: r, uid: o.UID, namespace: g.word(o.Namespace), name: o.Name, round: r.round}
	if len(o.OwnerReferences) > 0 {
		n.owners = make([]owner, len(o.OwnerReferences))
		for i, ref := range o.OwnerReferences {
			n.owners[i] = owner{uid: ref.UID, blocks: ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion}
		}
	}
	if o.DeletionTimestamp != nil {
		n.foreground = slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents)
		n.orphan = slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents)
	}
	return n
}

// word keeps one copy of a namespace's name. Namespaces come and go, so the copies are thrown away now and then.
func (g *graph) word(s string) string {
	if w, ok := g.words[s]; ok {
		return w
	}
	if len(g.words) >= maxWords {
		clear(g.words)
	}
	g.words[s] = s
	return s
}

const maxWords = 10_000

func (g *graph) index(before, now *node) {
	if before != nil {
		for _, o := range before.owners {
			delete(g.dependents[o.uid], before)
			if len(g.dependents[o.uid]) == 0 {
				delete(g.dependents, o.uid)
			}
		}
	}
	if now == nil {
		return
	}
	for _, o := range now.owners {
		if g.dependents[o.uid] == nil {
			g.dependents[o.uid] = make(map[*node]struct{}, 1)
		}
		g.dependents[o.uid][now] = struct{}{}
	}
}

// react asks for a look at whatever a change may concern.
func (g *graph) react(before, now *node) {
	if now.orphan && (before == nil || !before.orphan) {
		g.wake(now.key(), orphanPatience)
	}
	if now.foreground && (before == nil || !before.foreground) {
		g.wake(now.key(), 0)
		g.wakeDependents(now.uid)
	}
	changed := before == nil || !slices.Equal(before.owners, now.owners)
	if changed && g.owed(now) {
		g.wake(now.key(), owedPatience)
	}
	if before != nil && changed {
		g.wakeWaiting(before)
	}
}

// forget takes in that a watch saw an object end.
func (g *graph) forget(r *resource, uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resources[r.GroupResource] != r {
		return
	}
	if r.local && uid != "" {
		g.buried(uid)
	}
	if n := r.nodes[uid]; n != nil {
		g.remove(n)
	} else {
		g.wakeDependents(uid)
	}
}

func (g *graph) remove(n *node) {
	delete(n.resource.nodes, n.uid)
	g.index(n, nil)
	g.wakeDependents(n.uid)
	g.wakeWaiting(n)
}

func (g *graph) wakeDependents(uid types.UID) {
	for d := range g.dependents[uid] {
		g.wake(d.key(), 0)
	}
}

// wakeWaiting wakes the owners of n that wait for their dependents to go.
func (g *graph) wakeWaiting(n *node) {
	for _, o := range n.owners {
		for _, of := range g.bearers(o.uid) {
			if of.foreground {
				g.wake(of.key(), 0)
			}
		}
	}
}

// bearers are the objects with a UID: one, if everybody is honest.
func (g *graph) bearers(uid types.UID) []*node {
	var found []*node
	for _, r := range g.resources {
		if n := r.nodes[uid]; n != nil {
			found = append(found, n)
		}
	}
	return found
}

// owed says whether an object has to be judged: an owner is missing, is where it cannot be owned from, or waits for its
// dependents.
func (g *graph) owed(n *node) bool {
	return slices.ContainsFunc(n.owners, func(o owner) bool {
		bearers := g.bearers(o.uid)
		return len(bearers) == 0 || slices.ContainsFunc(bearers, func(b *node) bool {
			return b.foreground || b.namespace != "" && b.namespace != n.namespace
		})
	})
}

// What workers ask the graph. Answers are copies: the graph changes under way.

// coordinates are where an object is and how to reach it.
type coordinates struct {
	schema.GroupVersionResource
	namespace, name string
	uid             types.UID
}

// task is an object at the moment when a worker looks at it.
type task struct {
	key
	coordinates
	foreground, orphan bool
	// owed is false when the graph alone shows that every owner is well.
	owed bool
}

func (n *node) coordinates() coordinates {
	return coordinates{n.resource.gvr(), n.namespace, n.name, n.uid}
}

func (g *graph) task(k key) (task, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := k.resource.nodes[k.uid]
	if n == nil {
		return task{}, false
	}
	return task{k, n.coordinates(), n.foreground, n.orphan, g.owed(n)}, true
}

// where says where objects with a UID are, as far as watches know.
func (g *graph) where(uid types.UID) []coordinates {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []coordinates
	for _, n := range g.bearers(uid) {
		out = append(out, n.coordinates())
	}
	return out
}

// dependent is an object that names an owner.
type dependent struct {
	key
	coordinates
	blocks, foreground bool
}

// dependentsOf returns who names an owner. Who names one in another namespace is wrong about it, and does not block it.
func (g *graph) dependentsOf(uid types.UID, namespace string) []dependent {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []dependent
	for n := range g.dependents[uid] {
		blocks := (namespace == "" || namespace == n.namespace) &&
			slices.ContainsFunc(n.owners, func(o owner) bool { return o.uid == uid && o.blocks })
		out = append(out, dependent{n.key(), n.coordinates(), blocks, n.foreground})
	}
	return out
}

// synced says whether everything of a resource has been seen, and since when the resource is known.
func (g *graph) synced(r schema.GroupResource) (synced bool, since time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.resources[r]; known != nil {
		return known.synced, known.since
	}
	return false, time.Time{}
}

// size is for metrics.
func (g *graph) size() (objects, synced, unsynced int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.resources {
		objects += len(r.nodes)
		if r.synced {
			synced++
		} else {
			unsynced++
		}
	}
	return objects, synced, unsynced
}

// adopt makes the graph hold a resource, or says through which version it is watched from now on. It keeps what it
// knows, and is not synced again until the new version has said everything.
func (g *graph) adopt(gr schema.GroupResource, namespaced, local bool, version string, now time.Time) *resource {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.resources[gr]
	if r == nil {
		r = &resource{GroupResource: gr, namespaced: namespaced, since: now, nodes: map[types.UID]*node{}}
		g.resources[gr] = r
	}
	r.local, r.version, r.synced = local, version, false
	return r
}

// drop forgets a resource that is not served any more. That its objects were forgotten says nothing about them: whoever
// they own is judged by what discovery says of the kind, which is nothing.
func (g *graph) drop(r *resource) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range r.nodes {
		g.remove(n)
	}
	delete(g.resources, r.GroupResource)
}
