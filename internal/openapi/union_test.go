package openapi

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func documentOf(t *testing.T, gv schema.GroupVersion, text string) part {
	t.Helper()
	d, err := NewDocument(indexPath(gv), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return part{d, gv}
}

func mergedText(t *testing.T, u union) string {
	t.Helper()
	d, err := u.merge()
	if err != nil {
		t.Fatal(err)
	}
	if d.Path != indexPath(u.of) {
		t.Errorf("the document is at %s", d.Path)
	}
	body, err := d.unpacked()
	if err != nil {
		t.Fatal(err)
	}
	if err := check(body, u.of); err != nil {
		t.Errorf("the document is not as one of a backend must be: %v", err)
	}
	return string(body)
}

func TestTheDocumentOfSeveralBackendsIsTheirUnion(t *testing.T) {
	gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
	first := documentOf(t, gv, `{"openapi":"3.0.0","paths":{"/apis/example.com/v1/a":{"get":{"x":"first"}}},"components":{"schemas":{"A":{"description":"first"}}}}`)
	second := documentOf(t, gv, `{"openapi":"3.0.0","paths":{"/apis/example.com/v1/a":{"get":{"x":"second"}},"/apis/example.com/v1/b":{"get":{}}},"components":{"schemas":{"A":{"description":"second"},"B":{}},"securitySchemes":{"S":{}}}}`)
	const want = `{"components":{"schemas":{"A":{"description":"first"},"B":{}},"securitySchemes":{"S":{}}},"openapi":"3.0.0","paths":{"/apis/example.com/v1/a":{"get":{"x":"first"}},"/apis/example.com/v1/b":{"get":{}}}}`
	if got := mergedText(t, union{gv, []part{first, second}}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if d, err := (&union{gv, []part{first}}).merge(); err != nil || d.Hash != first.Hash {
		t.Errorf("one backend's document is %s and not its own, error %v", d.Hash, err)
	}
}

func TestTheDocumentOfAnotherVersionDescribesItsReadsInThisOne(t *testing.T) {
	from, to := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}, schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}
	text := `{"openapi":"3.0.0","paths":{"/apis/metrics.k8s.io/v1beta1/nodes":{"get":{"x-kubernetes-group-version-kind":{"group":"metrics.k8s.io","kind":"NodeMetrics","version":"v1beta1"}},"post":{}},"/apis/metrics.k8s.io/v1beta10/x":{}},` +
		`"components":{"schemas":{"N":{"maximum":1.0,"x-kubernetes-group-version-kind":[{"group":"metrics.k8s.io","kind":"NodeMetrics","version":"v1beta1"},{"group":"other","kind":"NodeMetrics","version":"v1beta1"}]}}}}`
	got := mergedText(t, union{to, []part{documentOf(t, from, text)}})
	const want = `{"components":{"schemas":{"N":{"maximum":1.0,"x-kubernetes-group-version-kind":[{"group":"metrics.k8s.io","kind":"NodeMetrics","version":"v1"},{"group":"other","kind":"NodeMetrics","version":"v1beta1"}]}}},"openapi":"3.0.0",` +
		`"paths":{"/apis/metrics.k8s.io/v1/nodes":{"get":{"x-kubernetes-group-version-kind":{"group":"metrics.k8s.io","kind":"NodeMetrics","version":"v1"}}}}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	body, err := inVersion([]byte(strings.Replace(text, `"openapi":"3.0.0"`, `"swagger":"2.0"`, 1)), from, to)
	if err != nil || !json.Valid(body) || strings.Contains(string(body), "metrics.k8s.io/v1beta1") {
		t.Errorf("version 2 is %s, error %v", body, err)
	}
}
