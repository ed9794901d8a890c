package discovery

import (
	"encoding/json"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestFromLegacy(t *testing.T) {
	list := &metav1.APIResourceList{APIResources: []metav1.APIResource{
		{Name: "deployments/scale", Namespaced: true, Group: "autoscaling", Version: "v1", Kind: "Scale", Verbs: metav1.Verbs{"get"}},
		{Name: "deployments", SingularName: "deployment", Namespaced: true, Kind: "Deployment", Verbs: metav1.Verbs{"get"}, ShortNames: []string{"deploy"}},
		{Name: "orphans/metrics", Kind: "MetricValue", Verbs: metav1.Verbs{"get"}},
	}}
	got, err := fromLegacy(gvGadgets, list)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 {
		t.Fatalf("%d resources", len(got))
	}
	deployments, orphans := got[0], got[1]
	if *deployments.ResponseKind != (metav1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Deployment"}) {
		t.Errorf("kind is %s", deployments.ResponseKind)
	}
	if scale := deployments.Subresources[0]; *scale.ResponseKind != (metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}) {
		t.Errorf("kind of scale is %s", scale.ResponseKind)
	}
	if orphans.Resource != "orphans" || *orphans.ResponseKind != (metav1.GroupVersionKind{}) || len(orphans.Subresources) != 1 || orphans.Scope != apidiscoveryv2.ScopeCluster {
		t.Errorf("the parent of an orphan is %+v", orphans)
	}

	for name, list := range map[string][]metav1.APIResource{
		"a subresource of another scope": {{Name: "a", Namespaced: true}, {Name: "a/status"}},
		"the same resource twice":        {{Name: "a"}, {Name: "a"}},
	} {
		if _, err := fromLegacy(gvGadgets, &metav1.APIResourceList{APIResources: list}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func FuzzBackendAnswers(f *testing.F) {
	f.Add([]byte(`{"items":[{"metadata":{"name":"example.com"},"versions":[{"version":"v1","resources":[{"resource":"a","scope":"Namespaced","subresources":[{"subresource":"s"}]}]}]}]}`))
	f.Add([]byte(`{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[{"name":"a/b/c"},{"name":"/"}]}`))
	f.Add([]byte(`{"uid":"u","resources":[{"resource":"a","scope":"Cluster","verbs":["delete"]}]}`))
	e, err := newEncoder()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		found, err := parseAggregated(body, []schema.GroupVersion{gvGadgets})
		if err == nil {
			serveable(t, e, found[gvGadgets])
		}
		if resources, err := parseLegacy(body, gvGadgets); err == nil {
			serveable(t, e, resources)
		}
		if last, err := decodeRecord(body); err == nil {
			serveable(t, e, last.last.Resources)
		}
	})
}

// serveable checks that what passes check can be encoded in every way, and kept and read again.
func serveable(t *testing.T, e *encoder, resources []apidiscoveryv2.APIResourceDiscovery) {
	t.Helper()
	if check(resources) != nil {
		return
	}
	resources = fill(resources)
	g := GroupVersion{GroupVersion: gvGadgets, Resources: resources}
	d, err := e.document(aggregatedList([]GroupVersion{g}, func(GroupVersion) bool { return true }), aggregatedParams)
	if err != nil {
		t.Fatal(err)
	}
	for mediaType, encoding := range d.encodings {
		if _, err := encoding(); err != nil {
			t.Errorf("%s: %v", mediaType, err)
		}
	}
	kept, err := json.Marshal(&known{Resources: resources})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeRecord(kept); err != nil {
		t.Errorf("cannot be read again: %v", err)
	}
}

// The legacy document of k8s.io/custom-metrics-apiserver v1.37.0 for metrics that it does not list. Refusing it kept the
// group out of discovery and every namespace that was being deleted waiting.
func TestResourcesWithoutANameAreLeftOut(t *testing.T) {
	gv := schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: "v1beta2"}
	resources, err := parseLegacy([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"custom.metrics.k8s.io/v1beta2","resources":[
		{"name":"/custommetrics","singularName":"","namespaced":false,"kind":"MetricValueList","verbs":["get"]},
		{"name":"pods/packets","singularName":"","namespaced":true,"kind":"MetricValueList","verbs":["get"]}]}`), gv)
	if err != nil {
		t.Fatal(err)
	}
	if err := check(resources); err != nil {
		t.Fatal(err)
	}
	if len(resources) != 1 || resources[0].Resource != "pods" || len(resources[0].Subresources) != 1 {
		t.Errorf("resources %+v", resources)
	}
}
