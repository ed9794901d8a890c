package garbage

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

// ignored resources own nothing and are owned by nothing; there are many of them and they come and go by themselves.
var ignored = map[schema.GroupResource]bool{
	{Resource: "events"}: true, {Group: "events.k8s.io", Resource: "events"}: true,
}

// monitors has one monitor for each resource that discovery shows. Only one goroutine uses it.
type monitors struct {
	client  metadata.Interface
	graph   *graph
	failed  func()
	log     *zap.Logger
	running map[schema.GroupResource]*monitor
	lists   chan struct{}
	joined  sync.WaitGroup
}

func newMonitors(client metadata.Interface, g *graph, failed func(), log *zap.Logger) *monitors {
	return &monitors{
		client: client, graph: g, failed: failed, log: log,
		running: map[schema.GroupResource]*monitor{}, lists: make(chan struct{}, localLists),
	}
}

// choice is the version through which a resource is watched.
type choice struct {
	gv       GroupVersion
	resource Resource
}

// follow starts and stops monitors so that they are those of d. A dead backend's stay: what they know is what keeps its
// owners alive.
func (m *monitors) follow(ctx context.Context, d *Discovery) {
	if d == nil || !d.Synced {
		return
	}
	wanted := m.choose(d)
	for gr, running := range m.running {
		if _, ok := wanted[gr]; !ok {
			m.stop(gr, running)
			m.graph.drop(running.resource)
		}
	}
	for gr, c := range wanted {
		running := m.running[gr]
		switch {
		case running == nil:
			m.start(ctx, gr, c)
		case running.resource.namespaced != c.resource.Namespaced:
			// Deleted and defined anew between two looks: what was known was of another kind.
			m.stop(gr, running)
			m.graph.drop(running.resource)
			m.start(ctx, gr, c)
		case running.gvr.Version != c.gv.Version:
			m.stop(gr, running)
			m.start(ctx, gr, c)
		}
	}
}

// choose takes the version that is watched now if it is still served, and otherwise the preferred one that answers.
func (m *monitors) choose(d *Discovery) map[schema.GroupResource]choice {
	wanted := map[schema.GroupResource]choice{}
	for _, gv := range d.GroupVersions {
		for _, r := range gv.Resources {
			gr := schema.GroupResource{Group: gv.Group, Resource: r.Name}
			if !r.Collectable || ignored[gr] {
				continue
			}
			c, running := choice{gv, r}, m.running[gr]
			before, chosen := wanted[gr]
			switch {
			case !chosen, running != nil && running.gvr.Version == gv.Version:
				wanted[gr] = c
			case (running == nil || running.gvr.Version != before.gv.Version) && gv.Current && !before.gv.Current:
				wanted[gr] = c
			}
		}
	}
	return wanted
}

func (m *monitors) start(ctx context.Context, gr schema.GroupResource, c choice) {
	ctx, cancel := context.WithCancel(ctx)
	gvr := gr.WithVersion(c.gv.Version)
	started := &monitor{
		resource: m.graph.adopt(gr, c.resource.Namespaced, c.gv.Local, c.gv.Version, time.Now()),
		gvr:      gvr, client: m.client.Resource(gvr), graph: m.graph, failed: m.failed, log: m.log,
		cancel: cancel, done: make(chan struct{}),
	}
	if c.gv.Local {
		started.lists = m.lists
	}
	m.running[gr] = started
	m.joined.Go(func() { started.run(ctx) })
}

// stop waits until the monitor has said its last word.
func (m *monitors) stop(gr schema.GroupResource, running *monitor) {
	running.cancel()
	<-running.done
	delete(m.running, gr)
}

func (m *monitors) wait() { m.joined.Wait() }
