package watchlist

import (
	"fmt"
	"slices"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routetable"
)

func TestProberSkipsLocalSplitAndPassingRoutes(t *testing.T) {
	route := func(group string, change func(*routetable.Route)) *routetable.Route {
		r := &routetable.Route{GroupVersion: schema.GroupVersion{Group: group, Version: "v1"}, Name: "v1." + group}
		change(r)
		return r
	}
	table := routetable.NewTable([]*routetable.Route{
		route("plain", func(*routetable.Route) {}),
		route("unheard", func(*routetable.Route) {}),
		route("local", func(r *routetable.Route) { r.Local = true }),
		route("split", func(r *routetable.Route) { r.Routing = &routing.Route{} }),
		route("passes", func(r *routetable.Route) { r.Options.InitialEvents = routetable.InitialEventsPass }),
	}, true)
	known := func(gv schema.GroupVersion) []apidiscoveryv2.APIResourceDiscovery {
		if gv.Group == "unheard" {
			return nil
		}
		return []apidiscoveryv2.APIResourceDiscovery{{Resource: "jobs", Verbs: []string{"create"}}, {Resource: "things", Verbs: []string{"list", "watch"}}}
	}
	var got []string
	for _, r := range RoutesOf(table, remote.View{KeepDead: true}, known) {
		got = append(got, fmt.Sprint(r.APIService, r.Resources, r.CurrentWhenUnavailable))
	}
	if want := []string{"v1.plain[things] true", "v1.unheard[] true"}; !slices.Equal(got, want) {
		t.Errorf("RoutesOf() = %q, want %q", got, want)
	}
}
