package apiservice

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"portico.dev/internal/transport"
)

// routeAll makes the first table, of everything that the caches hold.
func (c *Controller) routeAll() error {
	objects, err := c.lister.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list apiservices: %w", err)
	}
	served, err := c.wanted.names()
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

// maxBatch bounds how many events share a table.
const maxBatch = 1024

// loop turns events into tables until the queue is shut down. Events that are waiting together make one table.
func (c *Controller) loop() {
	for {
		first, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		batch := []event{first}
		for c.queue.Len() > 0 && len(batch) < maxBatch {
			next, _ := c.queue.Get()
			batch = append(batch, next)
		}
		c.reconcile(c.concerned(batch))
		for _, e := range batch {
			c.queue.Done(e)
		}
	}
}

// concerned is the names of the APIServices that events are about.
func (c *Controller) concerned(events []event) sets.Set[string] {
	names := sets.New[string]()
	services := sets.New[types.NamespacedName]()
	for _, e := range events {
		if e.apiService != "" {
			names.Insert(e.apiService)
		} else {
			services.Insert(e.service)
		}
	}
	if services.Len() == 0 {
		return names
	}
	for name, e := range c.entries {
		if ref := e.object.Spec.Service; ref != nil && services.Has(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}) {
			names.Insert(name)
		}
	}
	return names
}

// reconcile brings the named entries up to date, then monitors, then the table, then statuses.
func (c *Controller) reconcile(names sets.Set[string]) {
	differ := sets.New[string]()
	for name := range names {
		if c.follow(name) {
			differ.Insert(name)
		}
	}
	keep := c.supervise()
	for name := range names {
		if e, ok := c.entries[name]; ok && c.judge(name, e) {
			differ.Insert(name)
		}
	}
	if differ.Len() > 0 {
		c.publish()
	}
	// Only now: a request that read the table before this one may still be on its way to the backend that it names.
	if !maps.Equal(keep, c.kept) {
		c.cfg.Transport.Retain(keep)
		c.kept = keep
	}
	for name := range differ {
		c.scribe.queue.Add(name)
	}
}

// supervise makes monitors follow the entries, and returns the backends that are in use.
func (c *Controller) supervise() map[*transport.Backend]bool {
	watched := make(map[*transport.Backend][]schema.GroupVersion)
	base := make(map[*transport.Backend]string)
	moved := make(map[*transport.Backend]bool)
	for _, e := range c.entries {
		if e.backend == nil {
			continue
		}
		versions := watched[e.backend]
		if e.askable() {
			versions = append(versions, e.groupVersion())
		}
		watched[e.backend] = versions
		base[e.backend] = e.base
		moved[e.backend] = moved[e.backend] || e.moved
		e.moved = false
	}
	keep := make(map[*transport.Backend]bool, len(watched))
	for b, versions := range watched {
		keep[b] = true
		m, running := c.monitors.get(b)
		if !running {
			m = newMonitor(b.Probe(), func() int { return len(b.Endpoints()) }, base[b], c.prober, c.heard)
			m.silence = b.Silence
			if c.cfg.Spoke != nil {
				m.spoke = func() { c.cfg.Spoke(b) }
			}
			m.watch(versions)
			c.monitors.start(b, m)
			continue
		}
		m.watch(versions)
		if moved[b] {
			m.hurry()
		}
	}
	c.monitors.retain(keep)
	return keep
}

// heard is called by monitors.
func (c *Controller) heard(gvs []schema.GroupVersion) {
	for _, gv := range gvs {
		c.queue.Add(event{apiService: apiServiceName(gv)})
	}
}

// publish makes a table of the entries and wakes whoever waits for one.
func (c *Controller) publish() {
	routes := make([]*Route, 0, len(c.entries))
	for _, e := range c.entries {
		if e.route != nil {
			routes = append(routes, e.route)
		}
	}
	c.table.Store(NewTable(routes, c.synced))
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}
