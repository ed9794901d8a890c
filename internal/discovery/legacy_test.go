package discovery

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
