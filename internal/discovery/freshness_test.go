package discovery

import (
	"cmp"
	"slices"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"

	"portico.dev/internal/discovery/remote"
)

func resource(name string, scope apidiscoveryv2.ResourceScope, verbs ...string) apidiscoveryv2.APIResourceDiscovery {
	return apidiscoveryv2.APIResourceDiscovery{Resource: name, Scope: scope, Verbs: verbs}
}

var (
	deletable = resource("gadgets", apidiscoveryv2.ScopeNamespace, "delete", "get", "list")
	another   = resource("widgets", apidiscoveryv2.ScopeNamespace, "deletecollection", "list")
	readOnly  = resource("pods", apidiscoveryv2.ScopeNamespace, "get", "list")
	cluster   = resource("nodes", apidiscoveryv2.ScopeCluster, "delete", "get", "list")
)

// hears is one round: an answer, or none if fails is set. The route is up unless down is set.
type hears struct {
	resources []apidiscoveryv2.APIResourceDiscovery
	fails     string
	down      bool
	keep      bool // the APIService is annotated as current
	uid       string
	revision  string
	after     time.Duration // since the round before; 0: a minute
}

func says(resources ...apidiscoveryv2.APIResourceDiscovery) hears { return hears{resources: resources} }

// soon is an empty answer a second after the previous one.
func soon() hears { return hears{after: time.Second} }

func TestFreshness(t *testing.T) {
	const current, stale = apidiscoveryv2.DiscoveryFreshnessCurrent, apidiscoveryv2.DiscoveryFreshnessStale
	for name, c := range map[string]struct {
		kept   []apidiscoveryv2.APIResourceDiscovery // last-known from before the start; nil: none
		rounds []hears
		want   apidiscoveryv2.DiscoveryFreshness
		holds  []string
	}{
		"never heard of":          {want: stale},
		"dead from the start":     {rounds: []hears{{fails: "dial", down: true}}, want: stale},
		"answers":                 {rounds: []hears{says(deletable)}, want: current, holds: []string{"gadgets"}},
		"legitimately empty":      {rounds: []hears{says()}, want: current},
		"fails after it answered": {rounds: []hears{says(deletable), {fails: "timeout"}}, want: stale, holds: []string{"gadgets"}},
		"fails and comes back":    {rounds: []hears{says(deletable), {fails: "timeout"}, says(deletable)}, want: current, holds: []string{"gadgets"}},
		"unavailable by the verdict alone": {
			rounds: []hears{{resources: []apidiscoveryv2.APIResourceDiscovery{deletable}, down: true}}, want: stale, holds: []string{"gadgets"},
		},
		"dead with nothing that a namespace could lose": {
			rounds: []hears{says(readOnly, cluster), {fails: "dial", down: true}}, want: current, holds: []string{"pods", "nodes"},
		},
		"dead, and the APIService says current": {
			rounds: []hears{says(deletable), {fails: "dial", down: true, keep: true}}, want: current, holds: []string{"gadgets"},
		},
		"fails, and the APIService says current": {
			rounds: []hears{says(deletable), {fails: "timeout", keep: true}}, want: current, holds: []string{"gadgets"},
		},
		"dead, and the APIService no longer says current": {
			rounds: []hears{says(deletable), {fails: "dial", down: true, keep: true}, {fails: "dial", down: true}}, want: stale, holds: []string{"gadgets"},
		},
		"dead from the start, and the APIService says current": {rounds: []hears{{fails: "dial", down: true, keep: true}}, want: stale},
		"kept from before the start, dead, and the APIService says current": {
			kept: []apidiscoveryv2.APIResourceDiscovery{deletable}, rounds: []hears{{fails: "dial", down: true, keep: true}}, want: current, holds: []string{"gadgets"},
		},
		"kept for a registration that was made anew, which says current": {
			kept: []apidiscoveryv2.APIResourceDiscovery{deletable}, rounds: []hears{{fails: "dial", uid: "other", keep: true}}, want: stale,
		},
		"suddenly empty, and the APIService says current": {
			rounds: []hears{says(deletable), {keep: true}}, want: stale, holds: []string{"gadgets"},
		},
		"dead with an empty list": {rounds: []hears{says(), {fails: "dial", down: true}}, want: current},
		"kept from before the start, deletable, not asked yet": {
			kept: []apidiscoveryv2.APIResourceDiscovery{deletable}, want: stale, holds: []string{"gadgets"},
		},
		"kept from before the start, read-only, dead": {
			kept: []apidiscoveryv2.APIResourceDiscovery{readOnly}, rounds: []hears{{fails: "dial", down: true}}, want: current, holds: []string{"pods"},
		},
		"kept from before the start for a registration that was made anew": {
			kept: []apidiscoveryv2.APIResourceDiscovery{readOnly}, rounds: []hears{{fails: "dial", uid: "other"}}, want: stale,
		},
		"suddenly empty": {
			rounds: []hears{says(deletable), says()}, want: stale, holds: []string{"gadgets"},
		},
		"suddenly empty, twice": {
			rounds: []hears{says(deletable), says(), says()}, want: stale, holds: []string{"gadgets"},
		},
		"suddenly empty, confirmed": {
			rounds: []hears{says(deletable), says(), says(), says()}, want: current,
		},
		"suddenly empty, asked often, is not confirmed": {
			rounds: []hears{says(deletable), says(), soon(), soon(), soon(), soon()}, want: stale, holds: []string{"gadgets"},
		},
		"suddenly empty, asked often, and then for long": {
			rounds: []hears{says(deletable), says(), soon(), soon(), says(), soon(), says()}, want: current,
		},
		"suddenly empty, and back again": {
			rounds: []hears{says(deletable), says(), says(), says(deletable), says()}, want: stale, holds: []string{"gadgets"},
		},
		"a failure in between is no confirmation": {
			rounds: []hears{says(deletable), says(), says(), {fails: "dial"}, says()}, want: stale, holds: []string{"gadgets"},
		},
		"suddenly empty after a restart of ours": {
			kept: []apidiscoveryv2.APIResourceDiscovery{deletable}, rounds: []hears{says()}, want: stale, holds: []string{"gadgets"},
		},
		"one more is left out while the first is being confirmed": {
			rounds: []hears{says(deletable, another), says(another), says(another), says()}, want: stale, holds: []string{"gadgets", "widgets"},
		},
		"suddenly cannot be deleted": {
			rounds: []hears{says(deletable), says(resource("gadgets", apidiscoveryv2.ScopeNamespace, "get"))}, want: stale, holds: []string{"gadgets"},
		},
		"leaves out what a namespace cannot lose": {
			rounds: []hears{says(deletable, readOnly), says(deletable)}, want: current, holds: []string{"gadgets"},
		},
		"read-only adapter goes empty": {rounds: []hears{says(readOnly), says()}, want: current},
		"suddenly empty with a new spec": {
			rounds: []hears{says(deletable), {revision: "2"}}, want: current,
		},
		"suddenly empty under a registration made anew": {
			rounds: []hears{says(deletable), {uid: "other"}}, want: current,
		},
		"gets more": {rounds: []hears{says(deletable), says(deletable, another)}, want: current, holds: []string{"gadgets", "widgets"}},
	} {
		t.Run(name, func(t *testing.T) {
			route := remote.Route{APIService: "v1.example.com", UID: "one", Revision: "1", Available: true}
			subject := &record{}
			if c.kept != nil {
				subject.last = &known{UID: "one", Revision: "1", Resources: c.kept}
			}
			now := time.Now()
			for _, h := range c.rounds {
				now = now.Add(cmp.Or(h.after, time.Minute))
				route.Available, route.CurrentWhenUnavailable = !h.down, h.keep
				if h.uid != "" {
					route.UID = "other"
				}
				if h.revision != "" {
					route.Revision = h.revision
				}
				if h.fails != "" {
					subject.fail(h.fails)
				} else {
					subject.update(route, h.resources, now)
				}
			}
			got, why := subject.freshness(route)
			if got != c.want {
				t.Errorf("freshness() = %s (%s), want %s", got, why, c.want)
			}
			if got == stale && why == "" {
				t.Errorf("freshness() = %s without a reason, want a reason", got)
			}
			var holds []string
			for _, r := range subject.resources(route) {
				holds = append(holds, r.Resource)
			}
			if !slices.Equal(holds, c.holds) {
				t.Errorf("resources() = %v, want %v", holds, c.holds)
			}
		})
	}
}
