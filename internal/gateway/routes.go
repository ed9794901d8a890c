package gateway

import (
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/discovery/watchlist"
)

// documentView is how discovery and OpenAPI see the routing table. What is known of a server stays current while it is dead: its resources are there for
// the API server, whose requests for them get 503 and the cause.
var documentView = remote.View{RemoteOnly: true, KeepDead: true}

// watchListRoutes is the routes whose servers are probed for watches with initial events.
func (g *Gateway) watchListRoutes() []watchlist.Route {
	snapshot := g.discovery.Current()
	return watchlist.RoutesOf(g.apiservices.Table(), documentView, func(gv schema.GroupVersion) []apidiscoveryv2.APIResourceDiscovery {
		known, _ := lookup(snapshot, gv)
		return known.Resources
	})
}
