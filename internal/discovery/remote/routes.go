package remote

import (
	"sync/atomic"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/routetable"
)

// View selects the part of a routing table that a server shows in its documents.
type View struct {
	// RemoteOnly omits the group-versions that this server serves itself.
	RemoteOnly bool
	// KeepDead keeps the last-known resources of every backend current while it is dead or has not been probed. It is for a
	// server that has API servers as clients: a missing resource would result in 404 instead of the cause.
	KeepDead bool
}

// Route converts a route.
func (v View) Route(r *routetable.Route) Route {
	route := Route{
		GroupVersion: r.GroupVersion, APIService: r.Name, UID: r.UID, Local: r.Local, Available: r.Available(),
		GroupPriority: r.GroupPriority, VersionPriority: r.VersionPriority,
		CurrentWhenUnavailable: v.KeepDead || r.Options.CurrentWhenUnavailable,
		ReachedElsewhere:       !r.Available() && r.Reachable(),
		Untested:               !v.KeepDead && !r.Local && r.NotChecked(),
	}
	if r.Service != nil { // another Service may serve fewer resources; a new CA bundle does not change the backend
		route.Revision = adoption.ServiceOf(r.Service).String()
	}
	if !route.Available {
		route.Reason, route.Since = r.Condition.Reason, r.Condition.LastTransitionTime.Time
	}
	if r.Backend != nil {
		route.Backend = r.Backend
	}
	return route
}

// Table converts a routing table.
func (v View) Table(t *routetable.Table) Table {
	out := Table{Synced: t.Synced(), Routes: make([]Route, 0, len(t.Routes()))}
	for _, r := range t.Routes() {
		if v.RemoteOnly && r.Local {
			continue
		}
		whole := v.Route(r)
		if r.Routing != nil {
			whole.Backend, whole.Parts = nil, r.PartsInUse() // the parts are polled instead
		}
		out.Routes = append(out.Routes, whole)
		for _, part := range r.Parts {
			of := v.Route(part)
			of.PartOf = r.Name
			out.Routes = append(out.Routes, of)
		}
	}
	return out
}

// Tables returns a function that converts the current routing table. The function caches the last result, because several
// readers request the same table repeatedly. It is safe for concurrent use.
func (v View) Tables(current func() *routetable.Table) func() Table {
	type seen struct {
		from *routetable.Table
		as   Table
	}
	var last atomic.Pointer[seen]
	return func() Table {
		from := current()
		if l := last.Load(); l != nil && l.from == from {
			return l.as
		}
		l := &seen{from, v.Table(from)}
		last.Store(l)
		return l.as
	}
}
