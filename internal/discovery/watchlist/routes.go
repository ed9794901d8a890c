package watchlist

import (
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/routetable"
)

// RoutesOf returns the routes of a table that are probed: routes with a single backend, without an annotation that
// configures watches with initial events. known returns the known resources of a remote group-version.
func RoutesOf(table *routetable.Table, view remote.View, known func(schema.GroupVersion) []apidiscoveryv2.APIResourceDiscovery) []Route {
	var out []Route
	for _, r := range table.Routes() {
		if r.Local || r.Routing != nil || r.Options.InitialEvents != routetable.InitialEventsAuto {
			continue
		}
		route := Route{Route: view.Route(r)}
		for _, resource := range known(r.GroupVersion) {
			if slices.Contains(resource.Verbs, "watch") {
				route.Resources = append(route.Resources, resource.Resource)
			}
		}
		out = append(out, route)
	}
	return out
}
