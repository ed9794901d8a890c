package dispatch

import (
	"context"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/routetable"
)

var exampleV1 = schema.GroupVersion{Group: "example.com", Version: "v1"}

// localRoute is a route to the local groups.
func localRoute() *routetable.Route {
	return &routetable.Route{
		GroupVersion: exampleV1, Name: "v1.example.com", Local: true, Condition: dispatchtest.Condition(apiregistrationv1.ConditionTrue, "Local", ""),
	}
}

func TestCatchUp(t *testing.T) {
	down := &routetable.Route{
		GroupVersion: exampleV1, Name: "v1.example.com", Condition: dispatchtest.Condition(apiregistrationv1.ConditionFalse, "FailedDiscoveryCheck", "it is down"),
	}
	isNew := *down
	isNew.NeverAvailable = true
	withReplica := isNew
	withReplica.Replicas = []string{"b"}
	const document = "/apis/example.com/v1"
	for name, c := range map[string]struct {
		before    *routetable.Route // nil: none
		builtIn   bool              // the group-version is local without a route
		notSynced bool
		target    string
		resource  string // the resource that the handler waits for
		waits     bool
		caughtUp  bool // the table has a local route after the wait
		code      int
	}{
		"a group-version that becomes known":          {target: widgets, resource: "widgets", waits: true, caughtUp: true, code: 200},
		"its document":                                {target: document, waits: true, caughtUp: true, code: 200},
		"one that stays unknown":                      {target: widgets, resource: "widgets", waits: true, code: 404},
		"one while the routes are not known yet":      {notSynced: true, target: widgets, code: 503},
		"a resource that local groups do not have":    {before: localRoute(), target: widgets, resource: "widgets", waits: true, code: 200},
		"one that they have":                          {before: localRoute(), target: "/apis/example.com/v1/known", code: 200},
		"the document of local groups":                {before: localRoute(), target: document, code: 200},
		"a resource of a local group without a route": {builtIn: true, target: widgets, resource: "widgets", waits: true, code: 200},
		"a backend that was never reached":            {before: &isNew, target: widgets, resource: "widgets", waits: true, caughtUp: true, code: 200},
		"one that stays so":                           {before: &isNew, target: document, waits: true, code: 503},
		"one that was reached before":                 {before: down, target: widgets, code: 503},
		"one that another replica reaches":            {before: &withReplica, target: widgets, code: 503},
	} {
		t.Run(name, func(t *testing.T) {
			tableOf := func(r *routetable.Route) *routetable.Table {
				if r == nil {
					return routetable.NewTable(nil, !c.notSynced)
				}
				return routetable.NewTable([]*routetable.Route{r}, !c.notSynced)
			}
			table := tableOf(c.before)
			config := configOf(nil)
			config.Routes = func() *routetable.Table { return table }
			config.LocalGroupVersions = func() sets.Set[schema.GroupVersion] {
				if c.builtIn {
					return sets.New(exampleV1)
				}
				return nil
			}
			waited := 0
			config.Serves = func(r schema.GroupVersionResource) bool { return r.Resource == "known" || waited > 0 && c.caughtUp }
			config.CatchUp = func(_ context.Context, gv schema.GroupVersion, resource string) bool {
				waited++
				if gv != exampleV1 || resource != c.resource {
					t.Errorf("CatchUp(%s, %q), want %s and %q", gv, resource, exampleV1, c.resource)
				}
				if c.caughtUp {
					table = tableOf(localRoute())
				}
				return c.caughtUp
			}
			w, _ := ask(t, New(config).Lookup(exampleV1), http.MethodGet, c.target)
			if w.Code != c.code || (waited == 1) != c.waits || waited > 1 {
				t.Errorf("GET %s = %d %s after %d waits, want %d, waited %t", c.target, w.Code, w.Body, waited, c.code, c.waits)
			}
		})
	}
}

func TestSettleWaitsForDocumentsOfLocalGroups(t *testing.T) {
	remote := &routetable.Route{GroupVersion: exampleV1, Name: "v1.example.com"}
	for name, c := range map[string]struct {
		route  *routetable.Route
		target string
		waits  int
	}{
		"the document of local groups":      {localRoute(), "/apis/example.com/v1", 1},
		"a resource of theirs":              {localRoute(), widgets, 0},
		"the document of a backend":         {remote, "/apis/example.com/v1", 0},
		"the document of what nobody knows": {nil, "/apis/example.com/v1", 1},
	} {
		var routes []*routetable.Route
		if c.route != nil {
			routes = append(routes, c.route)
		}
		config, waits := configOf(routetable.NewTable(routes, true)), 0
		config.Settle = func(context.Context, schema.GroupVersion) { waits++ }
		ask(t, New(config).Lookup(exampleV1), http.MethodGet, c.target)
		if waits != c.waits {
			t.Errorf("%s: GET %s waited %d times, want %d", name, c.target, waits, c.waits)
		}
	}
}
