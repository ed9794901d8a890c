package kinds_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
	"portico.dev/internal/routes/v1alpha1"
)

const example = "metadata: {name: v1.example.com}\n"

func TestAPIRoutes(t *testing.T) {
	kindtest.Refuses(t, []kindtest.Create{
		{"a name that is no APIService's", kindtest.Decode[v1alpha1.APIRoute](t, "metadata: {name: example}\nspec: {backends: [{name: a}]}"), []string{`metadata.name: Invalid value: "example": must be the name of an APIService, "<version>.<group>", such as "v1beta1.custom.metrics.k8s.io"`}},
		{"no backends", kindtest.Decode[v1alpha1.APIRoute](t, example), []string{"spec.backends: Required value: at least one backend is needed: it gets the requests that no rule matches"}},
		{
			"a rule for a backend that is not there",
			kindtest.Decode[v1alpha1.APIRoute](t, example+"spec: {backends: [{name: a}], rules: [{name: r, backendRefs: [{name: b, weight: 1}]}]}"),
			[]string{`spec.rules[0].backendRefs[0].name: Not found: "b"`},
		},
	})
	status := kindtest.Decode[v1alpha1.APIRoute](t, "metadata: {name: v1.example.com, resourceVersion: \"1\"}\nspec: {backends: [{name: a}]}")
	changed := status.DeepCopy()
	changed.Status.Backends = []v1alpha1.NamedConditions{{Name: "a", Conditions: []metav1.Condition{{Type: "Available", Status: "Perhaps", Reason: "X", LastTransitionTime: metav1.Now()}}}}
	kindtest.Refused(t, kindtest.StatusErrors(changed, status), `status.backends[0].conditions[0].status: Unsupported value: "Perhaps": supported values: "False", "True", "Unknown"`)
}

func TestWarningsOfAPIRoutes(t *testing.T) {
	for text, want := range map[string]string{
		"spec: {backends: [{name: a}], rules: [{name: all, backendRefs: [{name: a}]}, {name: late, backendRefs: [{name: a}]}]}": "rule late never matches",
		"spec: {backends: [{name: a, service: {namespace: ns, name: s}, caBundle: bm8gY2VydGlmaWNhdGU=}]}":                      "backend a: caBundle: ",
	} {
		if got := strings.Join(kindtest.Warnings(kindtest.Decode[v1alpha1.APIRoute](t, example+text)), "\n"); !strings.HasPrefix(got, want) {
			t.Errorf("Warnings of %s = %q, want the prefix %q", text, got, want)
		}
	}
}

func TestRoutingDefaults(t *testing.T) {
	kindtest.Defaults(t, []kindtest.Default{{
		"ports and weights", &v1alpha1.APIRoute{},
		"spec: {backends: [{name: a, service: {namespace: ns, name: s}}, {name: b, service: {namespace: ns, name: s, port: 1}}], rules: [{name: r, backendRefs: [{name: a}, {name: b, weight: 0}]}]}",
		"metadata: {}\nspec: {backends: [{name: a, service: {namespace: ns, name: s, port: 443}}, {name: b, service: {namespace: ns, name: s, port: 1}}], rules: [{name: r, backendRefs: [{name: a, weight: 1}, {name: b, weight: 0}]}]}\nstatus: {}",
	}})
}

func TestTables(t *testing.T) {
	const spec = "spec: {backends: [{name: adapter}, {name: queues, service: {namespace: ns, name: s}}]}\n"
	kindtest.Table[v1alpha1.APIRoute](t,
		"metadata: {name: v1.new.example.com}\n"+spec,
		"metadata: {name: v1.good.example.com}\n"+spec+"status: {conditions: [{type: Accepted, status: \"True\", reason: Accepted}, {type: Available, status: \"True\", reason: BackendsAvailable}]}",
		"metadata: {name: v1.half.example.com}\n"+spec+"status: {conditions: [{type: Accepted, status: \"True\", reason: Accepted}, {type: Available, status: \"False\", reason: BackendsUnavailable}]}",
		"metadata: {name: v1.lost.example.com}\n"+spec+"status: {conditions: [{type: Accepted, status: \"False\", reason: NoAPIService}]}")
}
