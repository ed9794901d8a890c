package apiservice

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

const withRollback = `
metadata: {name: v1.example.com}
spec:
  backends: [{name: own}, {name: other, service: {namespace: test, name: other, port: PORT}, insecureSkipTLSVerify: true}]
  rules:
  - {name: all, backendRefs: [{name: own, weight: 0}, {name: other}], rollback: {errorPercent: 10, minRequests: 3}}
`

// goesTo waits until the requests of the only rule go to a backend.
func (h *env) goesTo(backend string) *routetable.Route {
	h.t.Helper()
	var route *routetable.Route
	eventually(h.t, "requests go to "+backend, func() bool {
		r, ok := h.Table().Lookup(gvExample)
		if !ok || r.Routing == nil {
			return false
		}
		route = r
		c := r.Routing.Choose(&routing.Request{Verb: "get", Resource: "widgets", Name: "w"}, nil)[0]
		return r.Routing.Backends[c.Backend].Name == backend && (c.ErrorRate == nil) == (backend == "own")
	})
	return route
}

func (r *apiRoutes) rolledBack(name string) *metav1.Condition {
	if s := r.get(name).Status.Rules; len(s) == 1 {
		return meta.FindStatusCondition(s[0].Conditions, v1alpha1.ConditionRolledBack)
	}
	return nil
}

func TestRollbackHoldsUntilSpecChanges(t *testing.T) {
	t.Parallel()
	var routes *apiRoutes
	h := open(t, nil, withAPIRoutes(t, &routes), func(h *env, cfg *Config, _ *transport.Options) {
		cfg.Events = h.core.CoreV1().Events(metav1.NamespaceDefault)
	})
	own, other := h.serve("own"), h.serve("other")
	h.add(external("own"))
	h.add(external("other"))
	h.add(h.remote("example.com", "v1", "own", own.port()))
	routes.add(strings.Replace(withRollback, "PORT", itoa(other.port()), 1))
	const good = "Accepted=True(Accepted) Available=True(BackendsAvailable) backend own=True(Passed) backend other=True(Passed) " +
		"rule all Accepted=True(Accepted) rule all Available=True(BackendsAvailable)"
	routes.is("v1.example.com", good)
	route := h.goesTo("other")

	// The rollback is written in spite of conflicting writes of the status, and takes effect without a restart.
	routes.mu.Lock()
	routes.conflicts = 2
	routes.mu.Unlock()
	h.RollBack(route, "all", 1, routing.Errors{Failed: 3, Requests: 4, Interval: time.Minute})
	h.goesTo("own")
	routes.is("v1.example.com", good+" rule all RolledBack=True(ErrorRate)")
	c := routes.rolledBack("v1.example.com")
	if c.ObservedGeneration != 1 || c.Message != "3 of 4 requests for backend other failed within 1m0s: they go to own now; change the spec of the APIRoute to try it again" {
		t.Errorf("condition RolledBack = %+v, want generation 1 and a message with 3 of 4 failed requests", c)
	}
	eventually(t, "there is an Event", func() bool {
		list, err := h.core.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.Reason == "RolledBack" {
				return e.Type == corev1.EventTypeWarning && e.InvolvedObject.Kind == "APIRoute" && e.InvolvedObject.APIVersion == "routing.portico.dev/v1alpha1" &&
					e.InvolvedObject.Name == "v1.example.com" && strings.Contains(e.Message, "3 of 4")
			}
		}
		return false
	})

	// The leader, which rewrites the status, keeps the rollback while a backend is down and while the APIRoute has no effect.
	other.stop()
	h.backendFailed(route.Parts[1].Backend)
	routes.is("v1.example.com", "Accepted=True(Accepted) Available=True(BackendsAvailable) backend own=True(Passed) backend other=False(FailedDiscoveryCheck) "+
		"rule all Accepted=True(Accepted) rule all Available=True(BackendsAvailable) rule all RolledBack=True(ErrorRate)")
	other.start()
	routes.is("v1.example.com", good+" rule all RolledBack=True(ErrorRate)")
	if err := h.api.ApiregistrationV1().APIServices().Delete(t.Context(), "v1.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	routes.is("v1.example.com", "Accepted=False(NoAPIService) rule all RolledBack=True(ErrorRate)")
	h.add(h.remote("example.com", "v1", "own", own.port()))
	h.goesTo("own")

	// A new spec tries the backend again, and an old finding is not restored.
	routes.change("v1.example.com", func(o *v1alpha1.APIRoute) { o.Spec.Rules[0].Rollback.ErrorPercent = 20 })
	h.goesTo("other")
	routes.is("v1.example.com", good)
	version := routes.get("v1.example.com").ResourceVersion
	old := rollback{apiRoute: "v1.example.com", uid: route.Routing.UID, generation: route.Routing.Generation, rule: "all", backend: "other"}
	if err := h.rollbacks.sync(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	routes.mu.Lock()
	defer routes.mu.Unlock()
	if stored := routes.stored["v1.example.com"]; stored != version {
		t.Errorf("resource version after an old rollback = %s, want %s: the status must not be written", stored, version)
	}
}

// A replica that starts later, or that has not seen a request, reads the rollback from the status.
func TestAllReplicasApplyRollback(t *testing.T) {
	var routes, others *apiRoutes
	h := open(t, nil, withAPIRoutes(t, &routes))
	own, other := h.serve("own"), h.serve("other")
	h.add(external("own"))
	h.add(external("other"))
	h.add(h.remote("example.com", "v1", "own", own.port()))
	text := strings.Replace(withRollback, "PORT", itoa(other.port()), 1)
	routes.add(text)
	h.RollBack(h.goesTo("other"), "all", 1, routing.Errors{Failed: 3, Requests: 4, Interval: time.Minute})
	h.goesTo("own")
	h.countsRolledBack(`portico_apiroute_rolled_back{apiroute="v1.example.com",backend="other",rule="all"} 1`)

	second := h.another(withAPIRoutes(t, &others))
	second.run()
	others.add(text)
	second.goesTo("other")
	others.mu.Lock()
	var stored *v1alpha1.APIRoute
	eventually(t, "it is read as it is stored", func() bool {
		stored = others.get("v1.example.com").DeepCopy()
		return stored.ResourceVersion == others.stored["v1.example.com"]
	})
	stored.Status.Rules = routes.get("v1.example.com").Status.Rules
	others.store(stored, others.source.Modify)
	others.mu.Unlock()
	second.goesTo("own")
	second.countsRolledBack(`portico_apiroute_rolled_back{apiroute="v1.example.com",backend="other",rule="all"} 1`)
	routes.change("v1.example.com", func(o *v1alpha1.APIRoute) { o.Spec.Rules[0].BackendRefs[1].Weight = ptr.To[int32](2) })
	h.goesTo("other")
	h.countsRolledBack("")
}

// countsRolledBack waits until the metric of rollbacks has these series.
func (h *env) countsRolledBack(series string) {
	h.t.Helper()
	const name = "portico_apiroute_rolled_back"
	if series != "" {
		series = "# HELP " + name + " 1 for each backend of a rule of an APIRoute whose requests go to the first backend of the rule, because it failed too many.\n# TYPE " + name + " gauge\n" + series + "\n"
	}
	eventually(h.t, "rollbacks are counted", func() bool { return testutil.GatherAndCompare(h.registry, strings.NewReader(series), name) == nil })
}

func TestRollbackIsAddedToStatusOnce(t *testing.T) {
	o := &v1alpha1.APIRoute{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	o.Spec.Rules = []v1alpha1.APIRouteRule{{Name: "r", BackendRefs: []v1alpha1.BackendRef{{Name: "a"}, {Name: "b"}, {Name: "c"}}}}
	o.Status.Rules = []v1alpha1.RuleStatus{{Name: "r", RolledBack: []string{"c"}, Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionRolledBack, Status: metav1.ConditionTrue, ObservedGeneration: 1, Message: "of the spec before"},
	}}}
	found := routing.Errors{Failed: 1, Requests: 2, Interval: time.Second}
	for _, c := range []struct {
		rule, backend string
		added         bool
		rolledBack    string
	}{
		{"r", "b", true, "r/b"}, {"r", "b", false, "r/b"}, {"other", "b", false, "r/b"}, {"r", "c", true, "r/b r/c"},
	} {
		first, added := addRollback(o, rollback{rule: c.rule, backend: c.backend, generation: 2, found: found})
		if added != c.added || added && first != "a" || routing.RolledBack(o) != c.rolledBack {
			t.Errorf("addRollback(backend %s of rule %s) = %q, %v and rolled back %q, want first a, %v and %q", c.backend, c.rule, first, added, routing.RolledBack(o), c.added, c.rolledBack)
		}
	}
	if message := o.Status.Rules[0].Conditions[0].Message; !strings.Contains(message, "backend b failed") || !strings.Contains(message, "backend c failed") || strings.Contains(message, "before") {
		t.Errorf("message of condition RolledBack = %q, want backends b and c, and nothing of the spec before", message)
	}
}
