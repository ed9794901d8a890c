package garbage

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

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
