package gateway

import (
	"slices"

	"portico.dev/internal/adoption"
	"portico.dev/internal/apiservice"
	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/discovery/watchlist"
)

// Packages of one layer do not import each other. The types of one are converted into those of another here.

// remoteTable is the routing table as discovery and OpenAPI see it. What is known of a server stays current while it is dead: its resources
// are there for the API server, whose requests for them get 503 and the cause.
func remoteTable(table *apiservice.Table) remote.Table {
	out := remote.Table{Synced: table.Synced()}
	for _, r := range table.Routes() {
		if r.Local {
			continue
		}
		whole := remoteRoute(r)
		if r.Routing != nil {
			whole.Backend, whole.Parts = nil, r.PartsInUse() // they are asked
		}
		out.Routes = append(out.Routes, whole)
		for _, part := range r.Parts {
			of := remoteRoute(part)
			of.PartOf = r.Name
			out.Routes = append(out.Routes, of)
		}
	}
	return out
}

func remoteRoute(r *apiservice.Route) remote.Route {
	route := remote.Route{
		GroupVersion: r.GroupVersion, APIService: r.Name, UID: r.UID, Available: r.Available(),
		GroupPriority: r.GroupPriority, VersionPriority: r.VersionPriority, CurrentWhenUnavailable: true,
	}
	if r.Service != nil {
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

// watchListRoutes is the routes whose servers are probed for watches with initial events.
func (g *Gateway) watchListRoutes() []watchlist.Route {
	snapshot := g.discovery.Current()
	var out []watchlist.Route
	for _, r := range g.apiservices.Table().Routes() {
		if r.Local || r.Routing != nil || r.Options.InitialEvents != apiservice.InitialEventsAuto {
			continue
		}
		route := watchlist.Route{Route: remoteRoute(r)}
		if known, ok := lookup(snapshot, r.GroupVersion); ok {
			for _, resource := range known.Resources {
				if slices.Contains(resource.Verbs, "watch") {
					route.Resources = append(route.Resources, resource.Resource)
				}
			}
		}
		out = append(out, route)
	}
	return out
}
