package simulation

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/routes/v1alpha1"
)

const (
	// watchedNamespace is the namespace of watched objects, in all collections.
	watchedNamespace = "watched"
	// watchedObjects is the number of objects of a collection that are written.
	watchedObjects = 2
	// writesPerStep is the number of writes of a step, and writePause the longest time between two of them.
	writesPerStep = 8
	writePause    = 4 * time.Second
)

// watchedCollection is a collection that is written and watched. It exists as long as the world.
type watchedCollection struct {
	path    string
	typ     metav1.TypeMeta // of its objects
	objects []*writtenObject

	// acknowledged are the versions that writers know to exist or to have existed, of this history. It is guarded by world.mu.
	acknowledged []version
}

// writtenObject is the state of the only writer of an object.
type writtenObject struct {
	name string
	busy bool // a step writes it; guarded by world.mu

	write   int  // number of the latest write
	known   bool // the following fields are the state at the server
	exists  bool
	current version
	// doubtful is set after a creation or a deletion without an answer, which may still happen at any later time. Such an update
	// fails, because it has a resourceVersion.
	doubtful bool
}

// newCollections returns the collections of a world: a local one, and one of each backend that stores.
func (w *world) newCollections() []*watchedCollection {
	all := []*watchedCollection{{path: "/api/v1/namespaces/" + watchedNamespace + "/configmaps", typ: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}}}
	for _, b := range w.backends {
		if b.stores {
			all = append(all, &watchedCollection{path: b.path(watchedNamespace), typ: metav1.TypeMeta{Kind: "Widget", APIVersion: b.group + "/v1"}})
		}
	}
	for _, c := range all {
		for i := range watchedObjects {
			c.objects = append(c.objects, &writtenObject{name: fmt.Sprintf("object%d", i)})
		}
	}
	return all
}

// shareWatches lets the watches of a backend's watched objects share one watch per front door. Other requests are not affected.
func (w *world) shareWatches(c *client, b *backend) error {
	return c.do(w.ctx, http.MethodPost, "/apis/routing.portico.dev/v1alpha1/apiroutes", &v1alpha1.APIRoute{
		ObjectMeta: metav1.ObjectMeta{Name: b.apiService()},
		Spec: v1alpha1.APIRouteSpec{
			Backends: []v1alpha1.APIRouteBackend{{Name: b.name}},
			Rules: []v1alpha1.APIRouteRule{{
				Name: "shared", Matches: []v1alpha1.APIRouteMatch{{Namespaces: []string{watchedNamespace}}}, BackendRefs: []v1alpha1.BackendRef{{Name: b.name}},
				SharedReads: &v1alpha1.SharedReads{Callers: v1alpha1.CallersAll, Watches: true},
			}},
		},
	}).failure()
}

// collection returns the collection of a step. A history uses two collections, so that watches and writes meet: the local one, and one
// of a backend. It is mostly the last one, whose watches the front door sends itself; it relays the watches of other backends.
func (h *history) collection(s step) *watchedCollection {
	if s.other%2 == 0 {
		return h.collections[0]
	}
	last := len(h.collections) - 1
	if h.seed%4 == 0 {
		return h.collections[min(1, last)]
	}
	return h.collections[last]
}

// take returns an object that no other step writes, or nil.
func (h *history) take(c *watchedCollection, first int) *writtenObject {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	for i := range c.objects {
		if o := c.objects[(first+i)%len(c.objects)]; !o.busy {
			o.busy = true
			return o
		}
	}
	return nil
}

func (h *history) release(o *writtenObject) {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	o.busy = false
}

// write writes an object a few times, through one front door after the other. It prefers a collection with a watch.
func write(h *history, s step) {
	c := h.collection(s)
	if watched := h.watched(); len(watched) > 0 {
		c = watched[s.other%len(watched)]
	}
	o := h.take(c, int(s.choice%watchedObjects))
	if o == nil {
		return
	}
	defer h.release(o)
	for i := range writesPerStep {
		choice := s.choice >> (8 * (i + 1))
		h.writeOnce(h.ctx, h.client(users[s.choice%uint64(len(users))], h.front(s.target+i)), c, o, choice>>2%4 == 0)
		if !pause(h.ctx, time.Duration(choice%uint64(writePause/time.Millisecond))*time.Millisecond) {
			return
		}
	}
}

// writeOnce creates an object that does not exist, and updates or deletes one that exists. It reads the object first if the result
// of the last write is unknown.
func (h *history) writeOnce(ctx context.Context, by *client, c *watchedCollection, o *writtenObject, remove bool) {
	if !o.known && !h.readBack(ctx, by, c, o) {
		return
	}
	o.write++
	o.known = false
	next := version{name: o.name, write: o.write}
	object := &metav1.PartialObjectMetadata{TypeMeta: c.typ, ObjectMeta: metav1.ObjectMeta{Name: o.name, Annotations: map[string]string{writeAnnotation: strconv.Itoa(o.write)}}}
	method, path := http.MethodPut, c.path+"/"+o.name
	switch {
	case !o.exists:
		method, path = http.MethodPost, c.path
	case remove:
		method, object = http.MethodDelete, nil
	default:
		next.replaces = o.current.write
		object.ResourceVersion, object.Annotations[replacesAnnotation] = strconv.FormatInt(o.current.revision, 10), strconv.Itoa(next.replaces)
	}
	var body any
	if object != nil {
		body = object
	}
	a := by.do(ctx, method, path, body)
	h.log.addf("write %d: %s through %s: %d after %.3fs%s", o.write, a.request, by.front.name, a.status, a.took.Seconds(), explain(a))
	switch {
	case a.ok() && method == http.MethodDelete:
		o.known, o.exists = true, false
	case a.ok():
		h.acknowledge(c, o, next, a)
	case method != http.MethodPut:
		o.doubtful = true
	}
}

// acknowledge records that a version exists or has existed.
func (h *history) acknowledge(c *watchedCollection, o *writtenObject, v version, a *answer) {
	var object metav1.PartialObjectMetadata
	err := a.decode(&object)
	var got version
	if err == nil {
		got, err = versionOf(&object)
	}
	v.revision = got.revision
	if err != nil || got != v {
		h.violate(ruleWatch, "%s: got %s (%v), want write %d", a.request, got, err, v.write)
		return
	}
	o.known, o.exists, o.current = true, true, v
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	c.acknowledged = append(c.acknowledged, v)
}

// readBack reads the state of an object, and reports whether it is known then.
func (h *history) readBack(ctx context.Context, by *client, c *watchedCollection, o *writtenObject) bool {
	a := by.do(ctx, http.MethodGet, c.path+"/"+o.name, nil)
	if a.err == nil && a.status == http.StatusNotFound {
		o.known, o.exists = true, false
		return true
	}
	var object metav1.PartialObjectMetadata
	if err := a.decode(&object); err != nil {
		return false
	}
	var err error
	if o.current, err = versionOf(&object); err != nil {
		h.violate(ruleWatch, "%s: %v", a.request, err)
		return false
	}
	o.known, o.exists = true, true
	return true
}

// checkWritten returns an error if a list is not the state that the writers know.
func (c *watchedCollection) checkWritten(listed map[string]version) error {
	wanted := maps.Clone(listed)
	for _, o := range c.objects {
		switch {
		case !o.known || o.doubtful:
		case o.exists:
			wanted[o.name] = o.current
		default:
			delete(wanted, o.name)
		}
	}
	if !maps.Equal(wanted, listed) {
		return fmt.Errorf("the list has %s, want %s, which was written", describeVersions(listed), describeVersions(wanted))
	}
	return nil
}

// pause waits in virtual time, and reports whether the context continues.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
