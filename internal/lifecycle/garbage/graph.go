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
	// missingOwnerDelay is how long an object waits if its owner is not in the graph. Owners and dependents arrive through
	// different watches, and at the start all objects arrive at once.
	missingOwnerDelay = 2 * time.Second
	// orphanDelay gives the watches time to deliver objects created just before their owner was deleted.
	orphanDelay = time.Second
)

// key identifies an object in the graph.
type key struct {
	resource *resource
	uid      types.UID
}

// resourceID identifies a resource. hidden marks the objects that this server stores in a group-version served by an extension
// server. They differ from the objects of the same resource at the extension server.
type resourceID struct {
	schema.GroupResource
	hidden bool
}

// resource is one resource with the objects that its monitor has seen.
type resource struct {
	resourceID
	namespaced bool
	// added is when the resource was added.
	added time.Time

	// guarded by the graph's mutex
	version string // version used by the watch
	local   bool
	synced  bool // a complete list has been received and confirmed
	round   uint32
	nodes   map[types.UID]*node
}

func (r *resource) gvr() schema.GroupVersionResource { return r.WithVersion(r.version) }

// node is one object. Strings that many objects share are interned.
type node struct {
	resource        *resource
	uid             types.UID
	namespace, name string
	owners          []owner
	round           uint32
	// The object is being deleted and has the respective finalizer.
	foreground, orphan bool
}

type owner struct {
	uid    types.UID
	blocks bool
}

func (n *node) key() key { return key{n.resource, n.uid} }

// graph is the ownership graph. Monitors and workers call its methods.
type graph struct {
	// enqueue queues an object after a delay. It must not block or call the graph.
	enqueue func(k key, after time.Duration)
	// objectDeleted is called for objects of local resources that a watch reported as deleted.
	objectDeleted func(types.UID)

	mu         sync.Mutex // guards the fields below, nodes included
	resources  map[resourceID]*resource
	dependents map[types.UID]map[*node]struct{}
	names      map[string]string
}

func newGraph(enqueue func(key, time.Duration), objectDeleted func(types.UID)) *graph {
	return &graph{
		enqueue: enqueue, objectDeleted: objectDeleted, resources: map[resourceID]*resource{},
		dependents: map[types.UID]map[*node]struct{}{}, names: map[string]string{},
	}
}

// beginList starts a complete list; endList ends it and removes the objects that were not in it.
func (g *graph) beginList(r *resource) uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.round++
	return r.round
}

func (g *graph) endList(r *resource, round uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range r.nodes {
		if n.round != round {
			g.remove(n)
		}
	}
	r.synced = r.local
}

// markSynced records that a list and the watch after it are confirmed.
func (g *graph) markSynced(r *resource) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.synced = true
}

// observe adds an object from a list or a watch.
func (g *graph) observe(r *resource, o *metav1.PartialObjectMetadata) {
	if o.UID == "" {
		return // an object without a UID cannot own or be owned
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resources[r.resourceID] != r {
		return // from a monitor that was dropped
	}
	before := r.nodes[o.UID]
	now := g.node(r, o)
	r.nodes[now.uid] = now
	g.index(before, now)
	g.enqueueAffected(before, now)
}

func (g *graph) node(r *resource, o *metav1.PartialObjectMetadata) *node {
	both := string(o.UID) + o.Name // one allocation
	n := &node{resource: r, uid: types.UID(both[:len(o.UID)]), namespace: g.intern(o.Namespace), name: both[len(o.UID):], round: r.round}
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

// intern returns a shared copy of a namespace's name. The copies are dropped from time to time, because namespaces are deleted.
func (g *graph) intern(s string) string {
	if w, ok := g.names[s]; ok {
		return w
	}
	if len(g.names) >= maxNames {
		clear(g.names)
	}
	g.names[s] = s
	return s
}

const maxNames = 10_000

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

// enqueueAffected queues the objects that a change may affect.
func (g *graph) enqueueAffected(before, now *node) {
	if now.orphan && (before == nil || !before.orphan) {
		g.enqueue(now.key(), orphanDelay)
	}
	if now.foreground && (before == nil || !before.foreground) {
		g.enqueue(now.key(), 0)
		g.enqueueDependents(now.uid)
	}
	changed := before == nil || !slices.Equal(before.owners, now.owners)
	if changed && g.mustCheck(now) {
		g.enqueue(now.key(), missingOwnerDelay)
	}
	if before != nil && changed {
		g.enqueueWaitingOwners(before)
	}
}

// forget removes an object that a watch reported as deleted.
func (g *graph) forget(r *resource, uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resources[r.resourceID] != r {
		return
	}
	if r.local && uid != "" {
		g.objectDeleted(uid)
	}
	if n := r.nodes[uid]; n != nil {
		g.remove(n)
	} else {
		g.enqueueDependents(uid)
	}
}

func (g *graph) remove(n *node) {
	delete(n.resource.nodes, n.uid)
	g.index(n, nil)
	g.enqueueDependents(n.uid)
	g.enqueueWaitingOwners(n)
}

func (g *graph) enqueueDependents(uid types.UID) {
	for d := range g.dependents[uid] {
		g.enqueue(d.key(), 0)
	}
}

// enqueueWaitingOwners queues the owners of n that wait for the deletion of their dependents.
func (g *graph) enqueueWaitingOwners(n *node) {
	for _, o := range n.owners {
		for _, of := range g.withUID(o.uid) {
			if of.foreground {
				g.enqueue(of.key(), 0)
			}
		}
	}
}

// withUID returns the objects with a UID: one, unless a backend reuses UIDs.
func (g *graph) withUID(uid types.UID) []*node {
	var found []*node
	for _, r := range g.resources {
		if n := r.nodes[uid]; n != nil {
			found = append(found, n)
		}
	}
	return found
}

// mustCheck reports whether an object has to be checked: an owner is missing, is in another namespace, or waits for its
// dependents.
func (g *graph) mustCheck(n *node) bool {
	return slices.ContainsFunc(n.owners, func(o owner) bool {
		bearers := g.withUID(o.uid)
		return len(bearers) == 0 || slices.ContainsFunc(bearers, func(b *node) bool {
			return b.foreground || b.namespace != "" && b.namespace != n.namespace
		})
	})
}

// The following queries serve the workers. They return copies, because the graph changes concurrently.

// coordinates locate an object and the resource that serves it.
type coordinates struct {
	schema.GroupVersionResource
	namespace, name string
	uid             types.UID
	hidden          bool
}

// task is the state of an object when a worker processes it.
type task struct {
	key
	coordinates
	foreground, orphan bool
	// mustCheck is false if the graph alone shows that every owner exists.
	mustCheck bool
}

func (n *node) coordinates() coordinates {
	return coordinates{n.resource.gvr(), n.namespace, n.name, n.uid, n.resource.hidden}
}

func (g *graph) task(k key) (task, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := k.resource.nodes[k.uid]
	if n == nil {
		return task{}, false
	}
	return task{k, n.coordinates(), n.foreground, n.orphan, g.mustCheck(n)}, true
}

// locate returns the locations of objects with a UID, according to the watches.
func (g *graph) locate(uid types.UID) []coordinates {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []coordinates
	for _, n := range g.withUID(uid) {
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

// dependentsOf returns the objects that name an owner. A dependent in another namespace does not block the owner.
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

// synced reports whether a resource has been listed completely, and when it was added.
func (g *graph) synced(r resourceID) (synced bool, since time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.resources[r]; known != nil {
		return known.synced, known.added
	}
	return false, time.Time{}
}

// size returns the numbers for metrics.
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

// adopt adds a resource to the graph, or sets the version used by its watch. It keeps the objects. The resource is unsynced
// until the new version has been listed.
func (g *graph) adopt(id resourceID, namespaced, local bool, version string, now time.Time) *resource {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.resources[id]
	if r == nil {
		r = &resource{resourceID: id, namespaced: namespaced, added: now, nodes: map[types.UID]*node{}}
		g.resources[id] = r
	}
	r.local, r.version, r.synced = local, version, false
	return r
}

// drop removes a resource that is no longer served. Its objects may still exist: their dependents stay undecided, because
// discovery does not contain the kind.
func (g *graph) drop(r *resource) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range r.nodes {
		g.remove(n)
	}
	delete(g.resources, r.resourceID)
}
