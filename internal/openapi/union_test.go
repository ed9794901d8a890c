package openapi

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
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
	if d.Path != indexPath(u.version) {
		t.Errorf("path of the document = %s, want %s", d.Path, indexPath(u.version))
	}
	body, err := d.unpacked()
	if err != nil {
		t.Fatal(err)
	}
	if err := check(body, u.version); err != nil {
		t.Errorf("check() of the merged document failed: %v, want no error as for a backend's document", err)
	}
	return string(body)
}

func TestDocumentOfSeveralBackendsIsUnion(t *testing.T) {
	gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
	first := documentOf(t, gv, `{"openapi":"3.0.0","paths":{"/apis/example.com/v1/a":{"get":{"x":"first"}}},"components":{"schemas":{"A":{"description":"first"}}}}`)
	second := documentOf(t, gv, `{"openapi":"3.0.0","paths":{"/apis/example.com/v1/a":{"get":{"x":"second"}},"/apis/example.com/v1/b":{"get":{}}},"components":{"schemas":{"A":{"description":"second"},"B":{}},"securitySchemes":{"S":{}}}}`)
	const want = `{"components":{"schemas":{"A":{"description":"first"},"B":{}},"securitySchemes":{"S":{}}},"openapi":"3.0.0","paths":{"/apis/example.com/v1/a":{"get":{"x":"first"}},"/apis/example.com/v1/b":{"get":{}}}}`
	if got := mergedText(t, union{gv, []part{first, second}}); got != want {
		t.Errorf("merged document = %s, want %s", got, want)
	}
	if d, err := (&union{gv, []part{first}}).merge(); err != nil || d.Hash != first.Hash {
		t.Errorf("merge() of one document = hash %s, error %v, want its hash %s", d.Hash, err, first.Hash)
	}
}

func TestDocumentOfOtherVersionDescribesReads(t *testing.T) {
	from, to := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}, schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}
	text := `{"openapi":"3.0.0","paths":{"/apis/metrics.k8s.io/v1beta1/nodes":{"get":{"x-kubernetes-group-version-kind":{"group":"metrics.k8s.io","kind":"NodeMetrics","version":"v1beta1"}},"post":{}},"/apis/metrics.k8s.io/v1beta10/x":{}},` +
		`"components":{"schemas":{"N":{"maximum":1.0,"x-kubernetes-group-version-kind":[{"group":"metrics.k8s.io","kind":"NodeMetrics","version":"v1beta1"},{"group":"other","kind":"NodeMetrics","version":"v1beta1"}]}}}}`
	got := mergedText(t, union{to, []part{documentOf(t, from, text)}})
	const want = `{"components":{"schemas":{"N":{"maximum":1.0,"x-kubernetes-group-version-kind":[{"group":"metrics.k8s.io","kind":"NodeMetrics","version":"v1"},{"group":"other","kind":"NodeMetrics","version":"v1beta1"}]}}},"openapi":"3.0.0",` +
		`"paths":{"/apis/metrics.k8s.io/v1/nodes":{"get":{"x-kubernetes-group-version-kind":{"group":"metrics.k8s.io","kind":"NodeMetrics","version":"v1"}}}}}`
	if got != want {
		t.Errorf("merged document = %s, want %s", got, want)
	}
	body, err := inVersion([]byte(strings.Replace(text, `"openapi":"3.0.0"`, `"swagger":"2.0"`, 1)), from, to)
	if err != nil || !json.Valid(body) || strings.Contains(string(body), "metrics.k8s.io/v1beta1") {
		t.Errorf("inVersion() of version 2 = %s, error %v, want JSON without metrics.k8s.io/v1beta1", body, err)
	}
}

// An APIService gets an APIRoute. Its document stays in the index only until the backends are polled.
func TestNewAPIRouteKeepsDocumentUntilPolled(t *testing.T) {
	gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
	own, theirs := documentOf(t, gv, `{"openapi":"3.0.0","paths":{"/a":{}}}`).Document, documentOf(t, gv, `{"openapi":"3.0.0","paths":{"/b":{}}}`).Document
	whole := remote.Route{GroupVersion: gv, APIService: "v1.example.com", UID: "u", Parts: []string{"v1.example.com/a"}}
	for name, c := range map[string]struct {
		part   remote.Route
		record record
		own    record
		want   []string
	}{
		"not probed yet":                     {remote.Route{Untested: true}, record{}, record{uid: "u", document: &own}, []string{own.Hash}},
		"not asked yet":                      {remote.Route{Available: true}, record{}, record{uid: "u", document: &own}, []string{own.Hash}},
		"asked":                              {remote.Route{Available: true}, record{document: &theirs}, record{uid: "u", document: &own}, []string{theirs.Hash}},
		"asked, without an answer":           {remote.Route{Available: true}, record{problem: "no answer"}, record{uid: "u", document: &own}, nil},
		"found dead":                         {remote.Route{}, record{}, record{uid: "u", document: &own}, nil},
		"what is known is of another object": {remote.Route{Untested: true}, record{}, record{uid: "other", document: &own}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c.part.GroupVersion, c.part.APIService, c.part.PartOf = gv, whole.Parts[0], whole.APIService
			u := unionOf(whole, remote.Table{Routes: []remote.Route{whole, c.part}}, map[string]*record{whole.APIService: &c.own, c.part.APIService: &c.record}, nil)
			var got []string
			for _, p := range u.parts {
				got = append(got, p.Hash)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("hashes of the union = %q, want %q", got, c.want)
			}
		})
	}
}

func TestCustomResourcesAreDescribedWithOtherResources(t *testing.T) {
	gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
	theirs, custom := documentOf(t, gv, `{"openapi":"3.0.0","paths":{"/a":{}}}`).Document, documentOf(t, gv, `{"openapi":"3.0.0","paths":{"/b":{}}}`).Document
	whole := remote.Route{GroupVersion: gv, APIService: "v1.example.com", UID: "u", Parts: []string{"v1.example.com/a", "v1.example.com/b"}}
	table := remote.Table{Routes: []remote.Route{
		whole, {GroupVersion: gv, APIService: "v1.example.com/a", PartOf: whole.APIService, Available: true},
		{GroupVersion: gv, APIService: "v1.example.com/b", PartOf: whole.APIService, Available: true, Local: true},
	}}
	records := map[string]*record{"v1.example.com": {}, "v1.example.com/a": {document: &theirs}}
	u := unionOf(whole, table, records, &custom)
	d, err := u.merge()
	if err != nil {
		t.Fatal(err)
	}
	body, err := d.unpacked()
	if err != nil || string(body) != `{"components":{},"openapi":"3.0.0","paths":{"/a":{},"/b":{}}}` {
		t.Errorf("merged document = %s, error %v, want the paths /a and /b", body, err)
	}
	if u := unionOf(whole, table, records, nil); len(u.parts) != 1 {
		t.Errorf("parts without a definition = %v, want 1", u.parts)
	}
}
