package garbage

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	nodes      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	boats      = schema.GroupVersionResource{Group: "sea.example.com", Version: "v1", Resource: "boats"}
	widgets    = schema.GroupVersionResource{Group: "shop.example.com", Version: "v1", Resource: "widgets"}
	gadgets    = schema.GroupVersionResource{Group: "lab.example.com", Version: "v1", Resource: "gadgets"}

	kinds = map[schema.GroupVersionResource]string{
		configMaps: "ConfigMap", nodes: "Node", boats: "Boat", widgets: "Widget", gadgets: "Gadget",
	}
)

func clusterScoped(r schema.GroupVersionResource) bool { return r == nodes }

// healthy returns the discovery of a cluster without faults.
func healthy() *Discovery {
	served := func(gv schema.GroupVersion, local bool, of ...schema.GroupVersionResource) GroupVersion {
		g := GroupVersion{GroupVersion: gv, Local: local, Current: true, Known: true, APIService: gv.Version + "." + gv.Group}
		for _, r := range of {
			g.Resources = append(g.Resources, Resource{Name: r.Resource, Kind: kinds[r], Namespaced: !clusterScoped(r), Collectable: true})
		}
		return g
	}
	return &Discovery{Synced: true, GroupVersions: []GroupVersion{
		served(configMaps.GroupVersion(), true, configMaps, nodes), served(boats.GroupVersion(), true, boats),
		served(widgets.GroupVersion(), false, widgets), served(gadgets.GroupVersion(), false, gadgets),
	}}
}

// with returns discovery with one group-version changed.
func (d *Discovery) with(gv schema.GroupVersion, change func(*GroupVersion)) *Discovery {
	out := &Discovery{Synced: d.Synced, GroupVersions: slices.Clone(d.GroupVersions)}
	for i := range out.GroupVersions {
		if out.GroupVersions[i].GroupVersion == gv {
			change(&out.GroupVersions[i])
		}
	}
	return out
}

// fault replaces the answer of a group-version; nil, nil, false lets the request through.
type fault func(ctx context.Context, verb string, at schema.GroupVersionResource, name string) (o *metav1.PartialObjectMetadata, err error, instead bool)

// model is an API server in memory that records violations of the collector's invariants. It is a model, not a mock: deletion,
// finalizers and preconditions work as in the real API server.
type model struct {
	mu       sync.Mutex
	version  int
	objects  map[schema.GroupVersionResource]map[string]*metav1.PartialObjectMetadata
	byUID    map[types.UID]*metav1.PartialObjectMetadata
	history  map[schema.GroupVersionResource][]watch.Event
	changed  chan struct{} // closed and replaced with every event
	faults   map[schema.GroupVersion]fault
	requests map[string]int
	// cuts holds the times at which all watches of a group-version end.
	cuts map[schema.GroupVersion]time.Time
	// shown returns the current discovery; nil means everything.
	shown func() *Discovery

	deleted []string
	wrong   []string
}

func newModel() *model {
	m := &model{
		objects: map[schema.GroupVersionResource]map[string]*metav1.PartialObjectMetadata{},
		byUID:   map[types.UID]*metav1.PartialObjectMetadata{},
		history: map[schema.GroupVersionResource][]watch.Event{},
		changed: make(chan struct{}), requests: map[string]int{},
	}
	for r := range kinds {
		m.objects[r] = map[string]*metav1.PartialObjectMetadata{}
	}
	return m
}

func (m *model) reset(faults map[schema.GroupVersion]fault, cuts map[schema.GroupVersion]time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed, m.faults, m.cuts = make(chan struct{}), faults, cuts
}

func (m *model) event(t watch.EventType, at schema.GroupVersionResource, o *metav1.PartialObjectMetadata) {
	m.version++
	o.ResourceVersion = strconv.Itoa(m.version)
	m.history[at] = append(m.history[at], watch.Event{Type: t, Object: o.DeepCopy()})
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *model) create(at schema.GroupVersionResource, namespace, name string, owners ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(fmt.Sprintf("%s-%d", name, m.version)), OwnerReferences: owners,
	}}
	m.objects[at][namespace+"/"+name], m.byUID[o.UID] = o, o
	m.event(watch.Added, at, o)
	return o.DeepCopy()
}

func refTo(at schema.GroupVersionResource, o *metav1.PartialObjectMetadata) metav1.OwnerReference {
	block := true
	return metav1.OwnerReference{APIVersion: at.GroupVersion().String(), Kind: kinds[at], Name: o.Name, UID: o.UID, BlockOwnerDeletion: &block}
}

func (m *model) has(at schema.GroupVersionResource, namespace, name string) bool {
	return m.read(at, namespace, name) != nil
}

func (m *model) read(at schema.GroupVersionResource, namespace, name string) *metav1.PartialObjectMetadata {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[at][namespace+"/"+name].DeepCopy()
}

// all returns every object with its resource, in a fixed order.
func (m *model) all() (out []placed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, at := range []schema.GroupVersionResource{configMaps, nodes, boats, widgets, gadgets} {
		for _, k := range slices.Sorted(maps.Keys(m.objects[at])) {
			out = append(out, placed{at, m.objects[at][k].DeepCopy()})
		}
	}
	return out
}

type placed struct {
	at schema.GroupVersionResource
	*metav1.PartialObjectMetadata
}

// alive reports whether an object with a UID exists and does not wait for its dependents to be deleted.
func (m *model) alive(uid types.UID) bool {
	o := m.byUID[uid]
	return o != nil && (o.DeletionTimestamp == nil || !slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents))
}

// end removes an object, or marks it as deleted while it has finalizers.
func (m *model) end(at schema.GroupVersionResource, id string, policy *metav1.DeletionPropagation) {
	o := m.objects[at][id]
	if policy != nil {
		o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool {
			return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
		})
		switch *policy {
		case metav1.DeletePropagationForeground:
			o.Finalizers = append(o.Finalizers, metav1.FinalizerDeleteDependents)
		case metav1.DeletePropagationOrphan:
			o.Finalizers = append(o.Finalizers, metav1.FinalizerOrphanDependents)
		}
	}
	if len(o.Finalizers) > 0 {
		if o.DeletionTimestamp == nil {
			now := metav1.Now()
			o.DeletionTimestamp = &now
		}
		m.event(watch.Modified, at, o)
		return
	}
	delete(m.objects[at], id)
	delete(m.byUID, o.UID)
	m.event(watch.Deleted, at, o)
}

// delete deletes an object as a user does.
func (m *model) delete(at schema.GroupVersionResource, namespace, name string, policy metav1.DeletionPropagation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id := namespace + "/" + name; m.objects[at][id] != nil { // the collector can be faster
		m.end(at, id, &policy)
	}
}

// Resource makes the model a metadata.Interface: the methods below are the collector's client.
func (m *model) Resource(r schema.GroupVersionResource) metadata.Getter {
	return resourceClient{m, r, ""}
}

type resourceClient struct {
	*model
	at        schema.GroupVersionResource
	namespace string
}

func (d resourceClient) Namespace(n string) metadata.ResourceInterface {
	return resourceClient{d.model, d.at, n}
}

func (d resourceClient) fault(ctx context.Context, verb, name string) (*metav1.PartialObjectMetadata, error, bool) {
	d.mu.Lock()
	d.requests[verb]++
	f := d.faults[d.at.GroupVersion()]
	d.mu.Unlock()
	if f == nil {
		return nil, nil, false
	}
	return f(ctx, verb, d.at, name)
}

func (d resourceClient) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	if o, err, instead := d.fault(ctx, "get", name); instead {
		return o, err
	}
	if o := d.read(d.at, d.namespace, name); o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(d.at.GroupResource(), name)
}

func (d resourceClient) List(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	if _, err, instead := d.fault(ctx, "list", ""); instead {
		return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "0"}}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(d.version)}}
	names := slices.Sorted(maps.Keys(d.objects[d.at]))
	from, _ := slices.BinarySearch(names, o.Continue)
	for _, n := range names[from:] {
		if o.Limit > 0 && int64(len(list.Items)) == o.Limit {
			list.Continue = n
			break
		}
		list.Items = append(list.Items, *d.objects[d.at][n].DeepCopy())
	}
	return list, nil
}

func (d resourceClient) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if _, err, instead := d.fault(ctx, "watch", ""); instead {
		return watch.NewEmptyWatch(), err
	}
	from, _ := strconv.Atoi(o.ResourceVersion)
	ctx, cancel := context.WithCancel(ctx)
	if cut, ok := d.cuts[d.at.GroupVersion()]; ok && time.Now().Before(cut) {
		ctx, cancel = context.WithDeadline(ctx, cut)
	}
	w := &watching{events: make(chan watch.Event), cancel: cancel}
	go d.send(ctx, from, w.events)
	return w, nil
}

func (d resourceClient) send(ctx context.Context, from int, to chan<- watch.Event) {
	defer close(to)
	d.mu.Lock()
	at, _ := slices.BinarySearchFunc(d.history[d.at], from+1, func(e watch.Event, v int) int {
		of, _ := strconv.Atoi(e.Object.(*metav1.PartialObjectMetadata).ResourceVersion)
		return of - v
	})
	d.mu.Unlock()
	for {
		d.mu.Lock()
		events, changed := d.history[d.at][at:], d.changed
		d.mu.Unlock()
		for _, e := range events {
			at++
			select {
			case to <- e:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

type watching struct {
	events chan watch.Event
	cancel context.CancelFunc
}

func (w *watching) Stop()                          { w.cancel() }
func (w *watching) ResultChan() <-chan watch.Event { return w.events }

func (d resourceClient) Delete(ctx context.Context, name string, o metav1.DeleteOptions, _ ...string) error {
	if _, err, instead := d.fault(ctx, "delete", name); instead {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id := d.namespace + "/" + name
	live := d.objects[d.at][id]
	if err := d.check(live, name, *o.Preconditions.UID, *o.Preconditions.ResourceVersion); err != nil {
		return err
	}
	for _, ref := range live.OwnerReferences {
		if d.alive(ref.UID) {
			d.wrong = append(d.wrong, fmt.Sprintf("%s %s was deleted; its owner %s %s lives", d.at.Resource, id, ref.Kind, ref.UID))
		}
	}
	d.deleted = append(d.deleted, d.at.Resource+" "+id)
	d.end(d.at, id, o.PropagationPolicy)
	return nil
}

func (d resourceClient) check(live *metav1.PartialObjectMetadata, name string, uid types.UID, version string) error {
	switch {
	case live == nil:
		return apierrors.NewNotFound(d.at.GroupResource(), name)
	case live.UID != uid, live.ResourceVersion != version:
		return apierrors.NewConflict(d.at.GroupResource(), name, fmt.Errorf("it has changed"))
	}
	return nil
}

func (d resourceClient) DeleteCollection(context.Context, metav1.DeleteOptions, metav1.ListOptions) error {
	return apierrors.NewMethodNotSupported(d.at.GroupResource(), "deletecollection")
}

func (d resourceClient) Patch(ctx context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	if o, err, instead := d.fault(ctx, "patch", name); instead {
		return o, err
	}
	var c change
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id := d.namespace + "/" + name
	live := d.objects[d.at][id]
	if err := d.check(live, name, c.Metadata.UID, c.Metadata.ResourceVersion); err != nil {
		return nil, err
	}
	if c.Metadata.OwnerReferences != nil {
		live.OwnerReferences = c.Metadata.OwnerReferences
	}
	if c.Metadata.Finalizers != nil {
		if slices.Contains(live.Finalizers, metav1.FinalizerOrphanDependents) {
			d.promise(live.UID)
		}
		live.Finalizers = c.Metadata.Finalizers
	}
	if live.DeletionTimestamp != nil && len(live.Finalizers) == 0 {
		d.end(d.at, id, nil)
	} else {
		d.event(watch.Modified, d.at, live)
	}
	return live.DeepCopy(), nil
}

// promise records a violation if an owner that orphans is deleted while an object of a registered kind still refers to it.
func (d resourceClient) promise(owner types.UID) {
	for at, of := range d.objects {
		if d.shown != nil && d.shown().lookup(at.GroupVersion()).APIService == "" {
			continue
		}
		for id, o := range of {
			if slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == owner }) {
				d.wrong = append(d.wrong, fmt.Sprintf("%s orphans, and went while %s %s still names it", owner, at.Resource, id))
			}
		}
	}
}

// The faults of a backend.

func unavailable(_ context.Context, _ string, at schema.GroupVersionResource, _ string) (*metav1.PartialObjectMetadata, error, bool) {
	return nil, apierrors.NewServiceUnavailable("APIService of " + at.Group + " is unavailable"), true
}

func hangs(ctx context.Context, _ string, _ schema.GroupVersionResource, _ string) (*metav1.PartialObjectMetadata, error, bool) {
	<-ctx.Done()
	return nil, ctx.Err(), true
}

// knowsNoPath answers 404 for the path, not for the object, as a proxy does, or a server that has not installed its paths yet.
func knowsNoPath(_ context.Context, verb string, at schema.GroupVersionResource, name string) (*metav1.PartialObjectMetadata, error, bool) {
	if verb == "list" {
		return nil, nil, true // other verbs get an empty answer
	}
	return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, verb, at.GroupResource(), name, "404 page not found", 0, true), true
}

// another answers with a different object.
func another(_ context.Context, verb string, at schema.GroupVersionResource, name string) (*metav1.PartialObjectMetadata, error, bool) {
	if verb != "get" {
		return nil, nil, verb != "delete" && verb != "patch"
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name + "x", UID: "nobody"}}, nil, true
}

// forgetful answers in good form that nothing exists, between its restart and the time when it has read its storage.
func forgetful(restart, up time.Time) fault {
	return func(_ context.Context, verb string, at schema.GroupVersionResource, name string) (*metav1.PartialObjectMetadata, error, bool) {
		if now := time.Now(); now.Before(restart) || !now.Before(up) {
			return nil, nil, false
		}
		if verb == "list" || verb == "watch" {
			return nil, nil, true
		}
		return nil, apierrors.NewNotFound(at.GroupResource(), name), true
	}
}

// flaky answers every request differently.
func flaky(r *rand.Rand) fault {
	var mu sync.Mutex
	return func(ctx context.Context, verb string, at schema.GroupVersionResource, name string) (*metav1.PartialObjectMetadata, error, bool) {
		mu.Lock()
		n := r.IntN(5)
		mu.Unlock()
		switch n {
		case 0:
			return unavailable(ctx, verb, at, name)
		case 1:
			return knowsNoPath(ctx, verb, at, name)
		case 2:
			return another(ctx, verb, at, name)
		}
		return nil, nil, false
	}
}

// eventRecorder collects the written Events; a nil channel drops them.
type eventRecorder struct {
	corev1client.EventInterface
	written chan *corev1.Event
}

func (b eventRecorder) Events(string) corev1client.EventInterface { return b }

func (b eventRecorder) Create(_ context.Context, e *corev1.Event, _ metav1.CreateOptions) (*corev1.Event, error) {
	if b.written != nil {
		b.written <- e
	}
	return e, nil
}
