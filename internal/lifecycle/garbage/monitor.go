package garbage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"portico.dev/internal/run"
)

const (
	// pageSize bounds the number of objects of a list that are in memory. Reflectors hold the whole list, which at 50,000
	// objects is larger than the graph itself. Local pages are larger, because the local watch cache walks over all remaining
	// objects for each page.
	pageSize, localPageSize = 500, 2500
	// listTimeout bounds the request for one page.
	listTimeout = 30 * time.Second
	// watchTime is the timeoutSeconds of a watch. watchGrace is the additional time that a server may take to end it.
	watchTime, watchGrace = 8 * time.Minute, time.Minute
	// A monitor that fails retries after one second. The delay doubles with each failure, up to five seconds, less a jitter.
	firstRetry, lastRetry = time.Second, 5 * time.Second
	// localLists is the number of local resources listed concurrently.
	localLists = 4
	// backendSyncDelay is how long the watch after a backend's list must last before the list counts as complete. A starting
	// backend may return an empty list although it has thousands of objects.
	backendSyncDelay = confirmDelay
)

// monitor lists and watches one resource and updates the graph.
type monitor struct {
	resource *resource
	gvr      schema.GroupVersionResource
	client   metadata.Getter
	graph    *graph
	lists    chan struct{} // semaphore of local lists; nil for a backend's resource
	failed   func()
	log      *zap.Logger
	cancel   context.CancelFunc
	done     chan struct{}
}

// local reports whether the objects are in the local etcd.
func (m *monitor) local() bool { return m.lists != nil }

// run lists and watches until ctx ends, and retries after failures.
func (m *monitor) run(ctx context.Context) {
	defer close(m.done)
	wait, complained := firstRetry, false
	for {
		began := time.Now()
		err := m.listAndWatch(ctx)
		if ctx.Err() != nil {
			return
		}
		m.failed()
		if time.Since(began) > time.Minute {
			wait, complained = firstRetry, false
		}
		if !complained { // log an unavailable backend once, not every five seconds
			complained = true
			m.log.Info("cannot watch a resource; garbage collection uses its last-known objects", zap.Stringer("resource", m.gvr), zap.Error(err))
		}
		if !run.Pause(ctx, wait-rand.N(wait/5)) {
			return
		}
		wait = min(2*wait, lastRetry)
	}
}

// listAndWatch lists once and then watches until an error.
func (m *monitor) listAndWatch(ctx context.Context) error {
	version, err := m.list(ctx)
	if apierrors.IsMethodNotSupported(err) {
		// Discovery lists the verb, but the server does not support it. No dependent can be found in this resource, so
		// deletions must not wait for a complete list.
		m.graph.markSynced(m.resource)
	}
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	for {
		began := time.Now()
		if version, err = m.watch(ctx, version); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		// Pause in case the server ends every watch immediately.
		if time.Since(began) < time.Second && !run.Pause(ctx, time.Second) {
			return ctx.Err()
		}
	}
}

func (m *monitor) list(ctx context.Context) (version string, err error) {
	if m.lists != nil {
		select {
		case m.lists <- struct{}{}:
			defer func() { <-m.lists }()
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	version, err = m.pages(ctx, m.pageSize())
	if apierrors.IsResourceExpired(err) { // expired between two pages; a list without pages cannot expire
		version, err = m.pages(ctx, 0)
	}
	return version, err
}

// pageSize returns the limit of a list request.
func (m *monitor) pageSize() int64 {
	if m.lists != nil {
		return localPageSize
	}
	return pageSize
}

func (m *monitor) pages(ctx context.Context, limit int64) (string, error) {
	round := m.graph.beginList(m.resource)
	options := metav1.ListOptions{Limit: limit}
	for {
		page, err := m.page(ctx, options)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			m.graph.observe(m.resource, &page.Items[i])
		}
		switch page.Continue {
		case "":
			m.graph.endList(m.resource, round)
			return page.ResourceVersion, nil
		case options.Continue:
			return "", errors.New("the same page again and again")
		}
		options.Continue = page.Continue
	}
}

func (m *monitor) page(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return m.client.List(ctx, options)
}

// watch returns the resource version to continue from if the server ended the watch normally.
func (m *monitor) watch(ctx context.Context, version string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, watchTime+watchGrace)
	defer cancel()
	seconds := int64(watchTime.Seconds())
	w, err := m.client.Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	if err != nil {
		return "", err
	}
	defer w.Stop()
	synced := time.NewTimer(m.syncDelay())
	defer synced.Stop()
	for {
		select {
		case e, open := <-w.ResultChan():
			if !open {
				return version, nil
			}
			if version, err = m.handle(e); err != nil {
				return "", err
			}
		case <-synced.C:
			m.graph.markSynced(m.resource)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// syncDelay returns zero for resources in the local etcd.
func (m *monitor) syncDelay() time.Duration {
	if m.lists != nil {
		return 0
	}
	return backendSyncDelay
}

func (m *monitor) handle(e watch.Event) (version string, err error) {
	if e.Type == watch.Error {
		return "", apierrors.FromObject(e.Object)
	}
	o, ok := e.Object.(*metav1.PartialObjectMetadata)
	if !ok {
		return "", fmt.Errorf("%s of a %T, which is no object", e.Type, e.Object)
	}
	switch e.Type {
	case watch.Added, watch.Modified:
		m.graph.observe(m.resource, o)
	case watch.Deleted:
		m.graph.forget(m.resource, o.UID)
	case watch.Bookmark:
	default:
		return "", fmt.Errorf("an event of type %q", e.Type)
	}
	return o.ResourceVersion, nil
}

// ignored contains resources that neither own nor are owned, are numerous, and expire.
var ignored = map[schema.GroupResource]bool{
	{Resource: "events"}: true, {Group: "events.k8s.io", Resource: "events"}: true,
}

// monitors runs one monitor for each resource in discovery. It is used by one goroutine only.
type monitors struct {
	client  metadata.Interface
	hidden  metadata.Interface
	graph   *graph
	failed  func()
	log     *zap.Logger
	running map[resourceID]*monitor
	lists   chan struct{}
	joined  sync.WaitGroup
}

func newMonitors(client, hidden metadata.Interface, g *graph, failed func(), log *zap.Logger) *monitors {
	return &monitors{
		client: client, hidden: hidden, graph: g, failed: failed, log: log,
		running: map[resourceID]*monitor{}, lists: make(chan struct{}, localLists),
	}
}

// watchedVersion is the version used to watch a resource.
type watchedVersion struct {
	gv       GroupVersion
	resource Resource
}

// update starts and stops monitors so that they match d. Monitors of unavailable backends continue, because their objects are
// owners that must not count as deleted.
func (m *monitors) update(ctx context.Context, d *Discovery) {
	if d == nil || !d.Synced {
		return
	}
	wanted := m.choose(d)
	for id, running := range m.running {
		if _, ok := wanted[id]; !ok {
			m.stop(id, running)
			m.graph.drop(running.resource)
		}
	}
	for id, c := range wanted {
		running := m.running[id]
		switch {
		case running == nil:
			m.start(ctx, id, c)
		case running.resource.namespaced != c.resource.Namespaced, running.local() != c.gv.Local:
			// The CRD was deleted and created again, or the group-version moved to or from an extension server. The known
			// objects belong to the previous resource.
			m.stop(id, running)
			m.graph.drop(running.resource)
			m.start(ctx, id, c)
		case running.gvr.Version != c.gv.Version:
			m.stop(id, running)
			m.start(ctx, id, c)
		}
	}
}

// choose selects the version that is watched now if it is still served, and otherwise the preferred version that is Current.
func (m *monitors) choose(d *Discovery) map[resourceID]watchedVersion {
	wanted := map[resourceID]watchedVersion{}
	for _, gv := range d.GroupVersions {
		for _, r := range gv.Resources {
			id := gv.resourceID(r.Name)
			if !r.Collectable || ignored[id.GroupResource] {
				continue
			}
			c, running := watchedVersion{gv, r}, m.running[id]
			before, chosen := wanted[id]
			switch {
			case !chosen, running != nil && running.gvr.Version == gv.Version:
				wanted[id] = c
			case (running == nil || running.gvr.Version != before.gv.Version) && gv.Current && !before.gv.Current:
				wanted[id] = c
			}
		}
	}
	return wanted
}

func (m *monitors) start(ctx context.Context, id resourceID, c watchedVersion) {
	ctx, cancel := context.WithCancel(ctx)
	gvr, client := id.WithVersion(c.gv.Version), m.client
	if id.hidden {
		client = m.hidden
	}
	started := &monitor{
		resource: m.graph.adopt(id, c.resource.Namespaced, c.gv.Local, c.gv.Version, time.Now()),
		gvr:      gvr, client: client.Resource(gvr), graph: m.graph, failed: m.failed, log: m.log,
		cancel: cancel, done: make(chan struct{}),
	}
	if c.gv.Local {
		started.lists = m.lists
	}
	m.running[id] = started
	m.joined.Go(func() { started.run(ctx) })
}

// stop stops a monitor and waits until it has returned.
func (m *monitors) stop(id resourceID, running *monitor) {
	running.cancel()
	<-running.done
	delete(m.running, id)
}

func (m *monitors) wait() { m.joined.Wait() }

// Discovery contains the group-versions served at one moment. It is immutable.
type Discovery struct {
	// Synced is false until every APIService has been seen. Until then, a missing group-version may exist.
	Synced bool
	// GroupVersions are in order of preference within a group.
	GroupVersions []GroupVersion
}

// GroupVersion describes one group-version, available or not.
type GroupVersion struct {
	schema.GroupVersion
	// Local group-versions are stored in the local etcd.
	Local bool
	// Hidden marks the objects that the local etcd contains in a group-version served by an extension server. The group-version
	// of the extension server is a separate entry. Clients cannot reach hidden objects, Config.Hidden can. A hidden
	// group-version is Local and Current.
	Hidden bool
	// Current reports that the server responds now and Resources is up to date.
	Current bool
	// Known is false if the list of resources has never been seen. The backend may then store any objects.
	Known bool
	// APIService is the name of the APIService. Reason is the problem of the backend if not Current.
	APIService, Reason string
	// Resources are the last known ones if not Current.
	Resources []Resource
}

// Resource is one kind of object.
type Resource struct {
	Name, Kind string
	Namespaced bool
	// Collectable resources can be listed, watched and deleted.
	Collectable bool
}

func (g GroupVersion) equal(o GroupVersion) bool {
	return g.GroupVersion == o.GroupVersion && g.Local == o.Local && g.Hidden == o.Hidden && g.Current == o.Current && g.Known == o.Known &&
		g.APIService == o.APIService && slices.Equal(g.Resources, o.Resources)
}

// resourceID returns the ID of one of its resources.
func (g GroupVersion) resourceID(name string) resourceID {
	return resourceID{schema.GroupResource{Group: g.Group, Resource: name}, g.Hidden}
}

// lookup returns a group-version as clients see it, or an unknown one if it is not served.
func (d *Discovery) lookup(gv schema.GroupVersion) GroupVersion { return d.find(gv, false) }

// find is like lookup, and also finds hidden group-versions.
func (d *Discovery) find(gv schema.GroupVersion, hidden bool) GroupVersion {
	for _, g := range d.GroupVersions {
		if g.GroupVersion == gv && g.Hidden == hidden {
			return g
		}
	}
	return GroupVersion{GroupVersion: gv, Hidden: hidden}
}

// hiddenKind returns the hidden resource of a kind.
func (d *Discovery) hiddenKind(gvk schema.GroupVersionKind) (GroupVersion, Resource, bool) {
	g := d.find(gvk.GroupVersion(), true)
	r, ok := g.kind(gvk.Kind)
	return g, r, ok
}

// kind returns the resource of a kind. If its version is not served, kind returns another version that is local and Current,
// because all versions of a local kind share their storage. For backends this is unknown.
func (d *Discovery) kind(gvk schema.GroupVersionKind) (GroupVersion, Resource, bool) {
	named := d.lookup(gvk.GroupVersion())
	if r, ok := named.kind(gvk.Kind); ok {
		return named, r, true
	}
	for _, g := range d.GroupVersions {
		if g.Group == gvk.Group && g.Local && g.Current && !g.Hidden {
			if r, ok := g.kind(gvk.Kind); ok {
				return g, r, true
			}
		}
	}
	return named, Resource{}, false
}

func (g GroupVersion) kind(name string) (Resource, bool) {
	i := slices.IndexFunc(g.Resources, func(r Resource) bool { return r.Kind == name })
	if i < 0 {
		return Resource{}, false
	}
	return g.Resources[i], true
}

func (g GroupVersion) resource(name string) (Resource, bool) {
	i := slices.IndexFunc(g.Resources, func(r Resource) bool { return r.Name == name })
	if i < 0 {
		return Resource{}, false
	}
	return g.Resources[i], true
}
