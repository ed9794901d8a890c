package doctor

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/routes/v1alpha1"
)

const secondBackend = "backend second"

// routed adds an APIRoute whose second backend is a Service like the APIService's one.
func routed(w *testCluster) {
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	w.portico = true
	w.route = &v1alpha1.APIRoute{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.APIRouteSpec{
			Backends: []v1alpha1.APIRouteBackend{{Name: "first"}, {
				Name: "second", CABundle: w.authority.pem, Service: &v1alpha1.ServiceReference{Namespace: "shop", Name: "orders"},
			}},
			Rules: []v1alpha1.APIRouteRule{{Name: "some", BackendRefs: []v1alpha1.BackendRef{{Name: "second"}}}},
		},
		Status: v1alpha1.APIRouteStatus{
			Conditions: []metav1.Condition{condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")},
			Backends: []v1alpha1.NamedConditions{
				{Name: "first", Conditions: []metav1.Condition{condition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, "Passed", "")}},
				{Name: "second", Conditions: []metav1.Condition{condition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, "Passed", "")}},
			},
			Rules: []v1alpha1.RuleStatus{
				{Name: "some", Conditions: []metav1.Condition{condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")}},
			},
		},
	}
}

func TestAPIRoutes(t *testing.T) {
	set := func(c *metav1.Condition, reason, message string) {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, message
	}
	for _, test := range []struct {
		name       string
		harm       func(*testCluster)
		hop        string // the first broken one, empty for none
		found, fix string
	}{
		{name: "well", harm: func(*testCluster) {}},
		{name: "a rule that is rolled back", found: "rule some is rolled back: 3 of 4 requests failed", harm: func(w *testCluster) {
			w.route.Status.Rules[0].Conditions = append(w.route.Status.Rules[0].Conditions,
				metav1.Condition{Type: v1alpha1.ConditionRolledBack, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonErrorRate, Message: "3 of 4 requests failed"})
		}},
		{name: "custom resources that nobody has defined", hop: HopRoute, found: "backend first, the custom resources of shop.example.com/v1, is not available (NoCustomResources): create one", fix: "kubectl get customresourcedefinitions",
			harm: func(w *testCluster) {
				w.route.Spec.Backends[0].CustomResources = &v1alpha1.CustomResources{}
				set(&w.route.Status.Backends[0].Conditions[0], "NoCustomResources", "create one")
			}},
		{name: "a migration that was killed", found: "rule some refuses writes: if no migration is running, run it again", harm: func(w *testCluster) {
			w.route.Spec.Rules[0].ReadOnly = true
		}},
		{name: "another API server has none", harm: func(w *testCluster) { w.portico = false }},
		{name: "without effect", hop: HopRoute, found: "has no effect (Invalid): two rules have one name", fix: "kubectl edit apiroute " + name,
			harm: func(w *testCluster) { set(&w.route.Status.Conditions[0], "Invalid", "two rules have one name") }},
		{name: "a rule that never matches", hop: HopRoute, found: "rule some has no effect (NeverMatches): rule all takes its requests", fix: "kubectl edit apiroute " + name,
			harm: func(w *testCluster) {
				set(&w.route.Status.Rules[0].Conditions[0], "NeverMatches", "rule all takes its requests")
			}},
		{name: "the first backend is down", hop: HopRoute, found: "backend first, the Service of the APIService, is not available (FailedDiscoveryCheck): it hangs", fix: "kubectl describe apiroute " + name,
			harm: func(w *testCluster) {
				set(&w.route.Status.Backends[0].Conditions[0], "FailedDiscoveryCheck", "it hangs")
			}},
		{name: "no Service", hop: secondBackend, found: "shop/other: service: ", fix: "kubectl edit apiroute " + name,
			harm: func(w *testCluster) { w.route.Spec.Backends[1].Service.Name = "other" }},
		{name: "a name that does not resolve", hop: secondBackend, found: "shop/dead is not available (FailedDiscoveryCheck): dial tcp: lookup nowhere.invalid", fix: "kubectl -n shop get service dead",
			harm: func(w *testCluster) {
				w.objects = append(w.objects, &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "dead"},
					Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "nowhere.invalid"},
				})
				w.route.Spec.Backends[1].Service.Name = "dead"
				set(&w.route.Status.Backends[1].Conditions[0], "FailedDiscoveryCheck", "dial tcp: lookup nowhere.invalid: no such host")
			}},
		{name: "a CA of another", hop: secondBackend, found: "shop/orders: tls: ", fix: "kubectl edit apiroute " + name,
			harm: func(w *testCluster) { w.route.Spec.Backends[1].CABundle = newAuthority(w.t, "old-shop-ca").pem }},
		{name: "down for the front door only", hop: secondBackend, found: "shop/orders is not available (FailedDiscoveryCheck): 500", fix: "kubectl -n shop get endpointslices",
			harm: func(w *testCluster) {
				set(&w.route.Status.Backends[1].Conditions[0], "FailedDiscoveryCheck", "500")
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newTestCluster(t)
			routed(w)
			test.harm(w)
			w.open()
			report := w.examine()
			if test.hop == "" {
				if want := map[bool]State{true: OK, false: ""}[w.portico]; report.Broken != nil || report.stateOf(secondBackend) != want || report.stateOf(HopRoute) != want {
					t.Errorf("broken = %+v, hops = %+v; want no fault", report.Broken, report.Hops)
				}
				if !strings.Contains(report.foundAt(HopRoute), test.found) {
					t.Errorf("finding of the route = %q, want %q", report.foundAt(HopRoute), test.found)
				}
				return
			}
			d := report.Broken
			if d == nil || d.Hop != test.hop || !strings.Contains(report.foundAt(test.hop), test.found) {
				t.Fatalf("broken = %+v, hops = %+v; want %s with %q", d, report.Hops, test.hop, test.found)
			}
			if !slices.ContainsFunc(d.Mend, func(line string) bool { return strings.Contains(line, test.fix) }) {
				t.Errorf("fixes = %q, want %q", d.Mend, test.fix)
			}
			for _, line := range d.Mend {
				if strings.Contains(line, "patch apiservice") {
					t.Errorf("fix %q is for the APIService, want one for the APIRoute", line)
				}
			}
		})
	}
}
