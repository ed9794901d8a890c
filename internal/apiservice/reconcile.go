package apiservice

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/routetable"
	"portico.dev/internal/run"
	"portico.dev/internal/transport"
)

// routeAll makes the first table from the content of the caches.
func (c *Controller) routeAll() error {
	objects, err := c.lister.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list apiservices: %w", err)
	}
	served, err := c.local.names()
	if err != nil {
		return err
	}
	names := sets.New(served...)
	names.Insert(apiServiceName(ownGroupVersion))
	for _, o := range objects {
		names.Insert(o.Name)
	}
	c.synced = true
	c.reconcile(names)
	return nil
}

// maxBatch is the maximum number of items that are processed for one table.
const maxBatch = 1024

// The pause between two tables is pauseFactor times the duration of the last one, at most maxPause. If a thousand
// APIServices are created one after the other, a table for each would occupy a core, although each takes less than a
// millisecond.
const (
	pauseFactor = 4
	maxPause    = 50 * time.Millisecond
)

// loop turns queue items into tables until the queue is shut down. Items that wait together make one table.
func (c *Controller) loop(ctx context.Context) {
	for {
		first, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		batch := []queueItem{first}
		for c.queue.Len() > 0 && len(batch) < maxBatch {
			next, _ := c.queue.Get()
			batch = append(batch, next)
		}
		start := time.Now()
		c.reconcile(c.affected(batch))
		took := time.Since(start)
		for _, e := range batch {
			c.queue.Done(e)
		}
		run.Pause(ctx, min(pauseFactor*took, maxPause))
	}
}

// affected returns the names of the APIServices that the items refer to.
func (c *Controller) affected(events []queueItem) sets.Set[string] {
	names := sets.New[string]()
	services, backends := sets.New[types.NamespacedName](), sets.New[*transport.Backend]()
	for _, e := range events {
		switch {
		case e.apiService != "":
			names.Insert(e.apiService)
		case e.backend != nil:
			backends.Insert(e.backend)
		default:
			services.Insert(e.service)
		}
	}
	if services.Len() == 0 && backends.Len() == 0 {
		return names
	}
	for name, e := range c.entries {
		if e.backend != nil && backends.Has(e.backend) {
			names.Insert(name)
		}
		if ref := e.object.Spec.Service; ref != nil && services.Has(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}) {
			names.Insert(name)
		}
	}
	return names
}

// reconcile updates the named entries, then the monitors, then the table, and queues the status writes.
func (c *Controller) reconcile(names sets.Set[string]) {
	differ := sets.New[string]()
	for name := range names {
		if _, _, isPart := cutPart(name); !isPart && c.refresh(name) {
			differ.Insert(name)
		}
	}
	parts := c.expand(names)
	for part := range parts {
		if c.refresh(part) {
			differ.Insert(part)
		}
	}
	removed := c.updateMonitors()
	for part := range parts { // before the APIServices, because their verdicts follow from these
		if e, ok := c.entries[part]; ok && c.updateRoute(part, e) {
			differ.Insert(part)
		}
	}
	for name := range names {
		if e, ok := c.entries[name]; ok && c.updateRoute(name, e) {
			differ.Insert(name)
		}
	}
	if differ.Len() > 0 {
		c.publish()
	}
	// Last, because a request that read the previous table may still be about to use one of its backends.
	if removed {
		c.cfg.Transport.Retain(c.kept)
	}
	for name := range differ {
		apiService, _, isPart := cutPart(name)
		if !isPart {
			c.status.queue.Add(name)
		}
		if c.cfg.APIRoutes != nil {
			c.routeStatus.queue.Add(apiService)
		}
	}
}

// users maps backends to the entries that use them, so that a change of one of a thousand APIServices does not require a
// scan of all.
type users struct {
	names map[*transport.Backend][]string
	// touched contains the backends with entries that have changed since the last call of updateMonitors.
	touched map[*transport.Backend]bool
}

// set records that the backend of an entry, which may be nil, was looked up again.
func (u *users) set(name string, before, after *transport.Backend) {
	if before != nil {
		u.touched[before] = true
		if before != after {
			u.names[before] = slices.DeleteFunc(u.names[before], func(other string) bool { return other == name })
		}
	}
	if after != nil {
		u.touched[after] = true
		if before != after {
			u.names[after] = append(u.names[after], name)
		}
	}
}

// updateMonitors starts, updates and stops monitors so that they match the entries, and reports whether a backend is no
// longer in use.
func (c *Controller) updateMonitors() (removed bool) {
	for b := range c.users.touched {
		names := c.users.names[b]
		if len(names) == 0 {
			delete(c.users.names, b)
			delete(c.kept, b)
			c.monitors.drop(b)
			removed = true
			continue
		}
		c.kept[b] = true
		c.updateMonitor(b, names)
	}
	clear(c.users.touched)
	return removed
}

// updateMonitor makes the monitor of a backend match its entries.
func (c *Controller) updateMonitor(b *transport.Backend, names []string) {
	versions, moved := make([]schema.GroupVersion, 0, len(names)), false
	for _, name := range names {
		e := c.entries[name]
		if gv := e.groupVersion(); e.probeable() && !slices.Contains(versions, gv) {
			versions = append(versions, gv)
		}
		moved = moved || e.changed
		e.changed = false
	}
	m, running := c.monitors.lookup(b)
	if !running {
		m = newMonitor(b.Probe(), func() int { return len(b.Endpoints()) }, c.entries[names[0]].base, c.prober, func(gvs []schema.GroupVersion) { c.enqueueVersions(b, gvs) })
		m.silence, m.waiting, m.several = b.Silence, b, b
		m.documentsMayDiffer = func() { c.cfg.BackendEvents.DocumentsMayDiffer(b) }
		m.watch(versions)
		c.monitors.start(b, m)
		return
	}
	m.watch(versions)
	if moved {
		m.probeFast()
	}
}

// enqueueVersions is called by monitors.
func (c *Controller) enqueueVersions(b *transport.Backend, gvs []schema.GroupVersion) {
	if c.routed.Load() > 0 {
		c.queue.Add(queueItem{backend: b}) // the backend may belong to an APIRoute, with a different version
	}
	for _, gv := range gvs {
		c.queue.Add(queueItem{apiService: apiServiceName(gv)})
	}
}

// publish makes a table from the entries and wakes the callers that wait for one.
func (c *Controller) publish() {
	routes := make([]*routetable.Route, 0, len(c.entries))
	for _, e := range c.entries {
		if e.route != nil && e.route.Of == "" {
			routes = append(routes, e.route)
		}
	}
	c.table.Store(routetable.NewTable(routes, c.synced))
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// queueItem identifies entries that the loop must update: one APIService, or all that refer to one Service or have one
// backend.
type queueItem struct {
	apiService string
	service    types.NamespacedName
	backend    *transport.Backend
}

// subscribe adds event handlers to the informers and waits until these have received every existing object. stop removes
// the handlers.
func (c *Controller) subscribe(ctx context.Context) (stop func(), synced bool, err error) {
	var subscriptions []func()
	stop = func() {
		for _, s := range subscriptions {
			s()
		}
	}
	var checkers []cache.DoneChecker
	subscribe := func(informer cache.SharedIndexInformer, h cache.ResourceEventHandler) {
		if err != nil {
			return
		}
		registration, e := informer.AddEventHandler(h)
		if e != nil {
			err = fmt.Errorf("listen for events: %w", e)
			return
		}
		subscriptions = append(subscriptions, func() { _ = informer.RemoveEventHandler(registration) })
		checkers = append(checkers, registration.HasSyncedChecker())
	}
	subscribe(c.cfg.APIServices.Informer(), handler[*apiregistrationv1.APIService]{c.apiServiceEvent})
	subscribe(c.cfg.Services.Informer(), handler[*corev1.Service]{c.serviceEvent})
	subscribe(c.cfg.EndpointSlices.Informer(), handler[*discoveryv1.EndpointSlice]{c.endpointSliceEvent})
	if c.cfg.Endpoints != nil {
		//lint:ignore SA1019 deprecated, and still written for Services without selector
		subscribe(c.cfg.Endpoints.Informer(), handler[*corev1.Endpoints]{c.endpointsEvent})
	}
	if c.cfg.APIRoutes != nil {
		subscribe(c.cfg.APIRoutes.Informer, handler[*v1alpha1.APIRoute]{c.apiRouteEvent})
	}
	if c.cfg.CRDs != nil {
		subscribe(c.cfg.CRDs.Informer(), handler[*apiextensionsv1.CustomResourceDefinition]{c.crdEvent})
	}
	if err != nil {
		return stop, false, err
	}
	return stop, cache.WaitFor(ctx, "", checkers...), nil
}

// handler turns the three kinds of informer events into one call. before is nil for an added object, after for a deleted
// one.
type handler[T any] struct {
	handle func(before, after T)
}

func (h handler[T]) OnAdd(o any, _ bool) {
	var none T
	if after, ok := o.(T); ok {
		h.handle(none, after)
	}
}

func (h handler[T]) OnUpdate(o, n any) {
	before, okBefore := o.(T)
	after, okAfter := n.(T)
	if okBefore && okAfter {
		h.handle(before, after)
	}
}

func (h handler[T]) OnDelete(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	var none T
	if before, ok := o.(T); ok {
		h.handle(before, none)
	}
}

func (c *Controller) apiServiceEvent(before, after *apiregistrationv1.APIService) {
	switch {
	case before != nil && after != nil && sameRegistration(before, after):
		if !equality.Semantic.DeepEqual(before.Status, after.Status) {
			// Either this server's write, which needs no action, or a foreign write, which the status writer reverts after
			// a delay.
			c.status.queue.AddAfter(after.Name, repairDelay)
		} else {
			c.checkStatusOwner(after.Name)
		}
		return
	case after != nil:
		if before != nil && before.Spec.Service != nil && after.Spec.Service == nil {
			c.registrar.becameLocal(after.Name)
		}
		c.queue.Add(queueItem{apiService: after.Name})
		c.registrar.queue.Add(after.Name)
	case before != nil:
		c.queue.Add(queueItem{apiService: before.Name})
		c.registrar.queue.Add(before.Name)
	}
}

// sameRegistration reports whether two versions of an APIService differ at most in their status.
func sameRegistration(a, b *apiregistrationv1.APIService) bool {
	return a.UID == b.UID && equality.Semantic.DeepEqual(a.Spec, b.Spec) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}

func (c *Controller) serviceEvent(before, after *corev1.Service) {
	if before != nil && after != nil && equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return
	}
	for _, s := range []*corev1.Service{before, after} {
		if s != nil {
			c.queue.Add(queueItem{service: types.NamespacedName{Namespace: s.Namespace, Name: s.Name}})
		}
	}
}

func (c *Controller) endpointSliceEvent(before, after *discoveryv1.EndpointSlice) {
	if before != nil && after != nil && before.ResourceVersion == after.ResourceVersion {
		return // resync
	}
	for _, s := range []*discoveryv1.EndpointSlice{before, after} {
		if s == nil || s.Labels[discoveryv1.LabelServiceName] == "" {
			continue
		}
		c.queue.Add(queueItem{service: types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}})
	}
}

func (c *Controller) crdEvent(before, after *apiextensionsv1.CustomResourceDefinition) {
	for _, crd := range []*apiextensionsv1.CustomResourceDefinition{before, after} {
		if crd == nil {
			continue
		}
		for _, v := range crd.Spec.Versions {
			name := apiServiceName(schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name})
			c.registrar.queue.Add(name)
			c.queue.Add(queueItem{apiService: name})
		}
	}
}
