package aggregator

import (
	"slices"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/client-go/metadata"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/discovery"
	"portico.dev/internal/lifecycle/garbage"
)

// newCollector is the garbage collector of whichever replica leads. Its client reaches backends too.
func (h *parts) newCollector(everywhere metadata.Interface) *garbage.Collector {
	return garbage.New(garbage.Config{
		Client: everywhere,
		Discovery: (&collectorView{
			snapshot: func() *discovery.Snapshot { return h.discovery.Current() },
			table:    func() *apiservice.Table { return h.apiservices.Table() },
		}).now,
		Leads:  h.election,
		Events: h.clients.CoreV1(), Metrics: h.metrics.Garbage, Logger: h.log,
	})
}

// collectorView is discovery as the garbage collector sees it, made anew only when something has changed: every worker
// asks for it for every object.
type collectorView struct {
	snapshot func() *discovery.Snapshot
	table    func() *apiservice.Table

	mu           sync.Mutex // guards what follows
	fromSnapshot *discovery.Snapshot
	fromTable    *apiservice.Table
	made         *garbage.Discovery
}

func (v *collectorView) now() *garbage.Discovery {
	snapshot, table := v.snapshot(), v.table()
	if snapshot == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.made == nil || snapshot != v.fromSnapshot || table != v.fromTable {
		v.fromSnapshot, v.fromTable, v.made = snapshot, table, garbageDiscovery(snapshot, table)
	}
	return v.made
}

// garbageDiscovery takes a group-version for current only while discovery and routing agree that it is: discovery also calls
// current what is dead and holds nothing that namespaces could lose, and either may be a moment behind the other.
func garbageDiscovery(snapshot *discovery.Snapshot, table *apiservice.Table) *garbage.Discovery {
	out := &garbage.Discovery{Synced: snapshot.Synced() && table.Synced()}
	for _, gv := range snapshot.GroupVersions() {
		fresh := gv.Freshness == apidiscoveryv2.DiscoveryFreshnessCurrent
		g := garbage.GroupVersion{
			GroupVersion: gv.GroupVersion, Local: gv.Local, Current: fresh && gv.Reason == "",
			Known: gv.Local || fresh || len(gv.Resources) > 0, APIService: gv.APIService, Reason: gv.Reason,
		}
		keeps := true
		if route, ok := table.Lookup(gv.GroupVersion); ok && !route.Local {
			keeps = !route.Options.NonPersistent
			g.Known = g.Known || !keeps
			if !route.Available() {
				g.Current, g.Reason = false, route.Condition.Reason
			}
		} else if !gv.Local {
			g.Current, g.Reason = false, "its APIService is gone, or has become another"
		}
		for _, r := range gv.Resources {
			if r.ResponseKind == nil || r.ResponseKind.Kind == "" {
				continue // nothing but a place for subresources
			}
			g.Resources = append(g.Resources, garbage.Resource{
				Name: r.Resource, Kind: r.ResponseKind.Kind, Namespaced: r.Scope == apidiscoveryv2.ScopeNamespace,
				Collectable: keeps && hasVerbs(r.Verbs, "list", "watch", "delete"),
			})
		}
		out.GroupVersions = append(out.GroupVersions, g)
	}
	return out
}

func hasVerbs(verbs []string, wanted ...string) bool {
	return !slices.ContainsFunc(wanted, func(v string) bool { return !slices.Contains(verbs, v) })
}
