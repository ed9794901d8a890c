package discovery

import (
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/respond"
)

// TestOverlayContainsOnlyServedGroupVersions checks that a group-version that is not served is stale, but not absent.
func TestOverlayContainsOnlyServedGroupVersions(t *testing.T) {
	e, err := newEncoder()
	if err != nil {
		t.Fatal(err)
	}
	gvs := []schema.GroupVersion{{Group: "a.io", Version: "v1"}, {Group: "b.io", Version: "v1"}, {Group: "c.io", Version: "v1"}}
	things := []apidiscoveryv2.APIResourceDiscovery{{Resource: "things", ResponseKind: &metav1.GroupVersionKind{Kind: "Thing"}}}
	s, err := newSnapshot(e, nil, []GroupVersion{
		{GroupVersion: gvs[0], Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: things},
		{GroupVersion: gvs[1], Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: things, Local: true},
	}, true, "")
	if err != nil {
		t.Fatal(err)
	}
	o := NewOverlay(s, gvs, func(gv schema.GroupVersion) bool { return gv.Group != "b.io" })
	body, err := o.Groups([]byte(`{"items":[{"metadata":{"name":"b.io"},"versions":[{"version":"v1","freshness":"Current"},{"version":"v2","freshness":"Current"}]}]}`), Form{respond.MediaJSON, true})
	want := `"items":[{"metadata":{"name":"b.io"},"versions":[{"version":"v1","freshness":"Stale"},{"version":"v2","freshness":"Current"}]},` +
		`{"metadata":{"name":"a.io"},"versions":[{"version":"v1","resources":[{"resource":"things","responseKind":{"group":"","version":"","kind":"Thing"},"scope":"","singularResource":"","verbs":null}],"freshness":"Current"}]},` +
		`{"metadata":{"name":"c.io"},"versions":[{"version":"v1","freshness":"Stale"}]}]`
	if err != nil || !strings.Contains(string(body), want) {
		t.Errorf("Groups() = %s, %v, want %s in it", body, err, want)
	}
	current, err := o.Version()
	if err != nil {
		t.Fatal(err)
	}
	if stale, err := NewOverlay(nil, gvs, nil).Version(); err != nil || stale == current {
		t.Errorf("Version() without a snapshot = %q, %v, want another than %q", stale, err, current)
	}
	for name, document := range map[string]string{"no JSON": "x", "another type": "[]"} {
		if body, err := o.Groups([]byte(document), Form{MediaType: respond.MediaJSON}); err == nil {
			t.Errorf("Groups(%s) = %s, want an error", name, body)
		}
	}
}
