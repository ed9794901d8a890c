package dispatch

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/filters"
	"portico.dev/internal/metrics"
	"portico.dev/internal/replicas/peers"
	"portico.dev/internal/routetable"
)

// A request that this replica cannot serve is forwarded to a replica that can, unless it comes from another replica.
func TestUnservableRequestIsForwardedToReplica(t *testing.T) {
	set := newSet(t)
	stated := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("replica: " + r.Header.Get(peers.Header)))
	})
	down := &routetable.Route{
		GroupVersion: exampleV1, Name: "v1.example.com", Replicas: []string{"b"},
		Condition: dispatchtest.Condition(apiregistrationv1.ConditionFalse, "FailedDiscoveryCheck", "it is down"),
	}
	alone := *down
	alone.Replicas = nil
	served := replicas{backend: dispatchtest.Backend(t, set, "replica", stated), serving: []string{"b"}}
	const handed = "replica: GET of alice"
	for name, c := range map[string]struct {
		route    *routetable.Route // nil: none
		replicas replicas
		without  bool // etcd
		handedOn bool // forwarded by another replica to this one
		code     int
		body     string
		by       string
	}{
		"a backend that another one reaches":        {route: down, replicas: served, code: 200, body: handed, by: "v1.example.com"},
		"one that none reaches":                     {route: &alone, replicas: served, code: 503, body: "APIService v1.example.com is unavailable", by: "v1.example.com"},
		"a request of that one":                     {route: down, replicas: served, handedOn: true, code: 503, body: "is unavailable", by: "v1.example.com"},
		"replicas that are gone":                    {route: down, replicas: replicas{err: errors.New("gone")}, code: 503, body: "is unavailable", by: "v1.example.com"},
		"a group-version that only another one has": {replicas: served, code: 200, body: handed, by: "v1.example.com"},
		"that of another one's request":             {replicas: served, handedOn: true, code: 404, body: "could not find"},
		"a local group, without etcd":               {route: localRoute(), replicas: served, without: true, code: 200, body: handed, by: "v1.example.com"},
		"a local group":                             {route: localRoute(), replicas: served, code: 200, body: "local", by: "local"},
	} {
		t.Run(name, func(t *testing.T) {
			var routes []*routetable.Route
			if c.route != nil {
				routes = append(routes, c.route)
			}
			config := configOf(routetable.NewTable(routes, true))
			config.Replicas, config.PeerMetrics = c.replicas, metrics.NewPeers(prometheus.NewRegistry())
			config.WithEtcd = func() []string {
				if c.without {
					return []string{"b"}
				}
				return nil
			}
			h := New(config).Lookup(exampleV1)
			given := HandlerFunc(func(w http.ResponseWriter, r *filters.Request) {
				if c.handedOn {
					r.Request = r.WithContext(peers.WithStatement(r.Context(), &peers.Statement{}))
				}
				h.Serve(w, r)
			})
			w, r := ask(t, given, http.MethodGet, widgets)
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.body) || r.Record.ServedBy != c.by {
				t.Errorf("response = %d %s, served by %q, want %d %s by %q", w.Code, w.Body, r.Record.ServedBy, c.code, c.body, c.by)
			}
		})
	}
}

// A group-version without a route is local, not known yet, or not found.
func TestUnroutedGroupVersionIsLocalPendingOrNotFound(t *testing.T) {
	for name, c := range map[string]struct {
		local, synced bool
		code          int
	}{
		"a local group":                             {true, true, 200},
		"a local group before the routes":           {true, false, 200},
		"nothing, before the routes are known":      {false, false, 503},
		"nothing, when everything that is is known": {false, true, 404},
	} {
		config := configOf(routetable.NewTable(nil, c.synced))
		if c.local {
			config.LocalGroupVersions = func() sets.Set[schema.GroupVersion] { return sets.New(exampleV1) }
		}
		w, _ := ask(t, New(config).Lookup(exampleV1), http.MethodGet, widgets)
		if w.Code != c.code || (w.Code == 503) != strings.Contains(w.Body.String(), `"retryAfterSeconds":5`) {
			t.Errorf("%s: response %d %s, want %d, with retryAfterSeconds 5 only for 503", name, w.Code, w.Body, c.code)
		}
	}
}
