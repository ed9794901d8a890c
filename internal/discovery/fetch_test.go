package discovery

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/discovery/remote/remotetest"
	"portico.dev/internal/respond"
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
		t.Fatalf("fromLegacy() = %d resources, want 2", len(got))
	}
	deployments, orphans := got[0], got[1]
	if *deployments.ResponseKind != (metav1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Deployment"}) {
		t.Errorf("kind = %s, want Deployment of example.com/v1", deployments.ResponseKind)
	}
	if scale := deployments.Subresources[0]; *scale.ResponseKind != (metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}) {
		t.Errorf("kind of scale = %s, want Scale of autoscaling/v1", scale.ResponseKind)
	}
	if orphans.Resource != "orphans" || *orphans.ResponseKind != (metav1.GroupVersionKind{}) || len(orphans.Subresources) != 1 || orphans.Scope != apidiscoveryv2.ScopeCluster {
		t.Errorf("parent of an orphan = %+v, want a cluster-scoped resource without a kind and with 1 subresource", orphans)
	}

	for name, list := range map[string][]metav1.APIResource{
		"a subresource of another scope": {{Name: "a", Namespaced: true}, {Name: "a/status"}},
		"the same resource twice":        {{Name: "a"}, {Name: "a"}},
	} {
		if _, err := fromLegacy(gvGadgets, &metav1.APIResourceList{APIResources: list}); err == nil {
			t.Errorf("%s: fromLegacy() succeeded, want an error", name)
		}
	}
}

func FuzzBackendResponses(f *testing.F) {
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

// serveable checks that resources that pass check can be encoded in every media type, and stored and decoded again.
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
		if _, err := encoding.make(); err != nil {
			t.Errorf("%s: encoding failed: %v, want no error", mediaType, err)
		}
	}
	kept, err := json.Marshal(&known{Resources: resources})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeRecord(kept); err != nil {
		t.Errorf("decodeRecord() of an encoded record failed: %v, want no error", err)
	}
}

// The legacy document of k8s.io/custom-metrics-apiserver v1.37.0 for metrics that it does not list. Refusing it kept the group
// out of discovery, and blocked the deletion of every namespace.
func TestResourcesWithoutNameAreOmitted(t *testing.T) {
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
		t.Errorf("resources = %+v, want pods with 1 subresource", resources)
	}
}

// Most servers answer every poll with the same bytes, and many without an ETag.
func TestRepeatedBodyIsDecodedOnce(t *testing.T) {
	body := func(verbs string) string {
		return `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"` + gvGadgets.Group + `"},"versions":[{"version":"` + gvGadgets.Version + `",
			"resources":[{"resource":"gadgets","scope":"Namespaced","verbs":[` + verbs + `],"responseKind":{"group":"","version":"","kind":"Gadget"}}]}]}]}`
	}
	answers := func(body string) http.Handler {
		return remotetest.Paths{"/apis": remotetest.Answers(http.StatusOK, "application/json;"+aggregatedParams, body)}
	}
	b := remotetest.NewTLS(t, "ns/gadgets:443", answers(body(`"get"`)))
	s, wanted := &session{}, []schema.GroupVersion{gvGadgets}
	poll := func() []apidiscoveryv2.APIResourceDiscovery {
		t.Helper()
		got := fetchAll(t.Context(), remote.NewFetcher(1), b, wanted, s)[gvGadgets]
		if got.err != nil || len(got.resources) != 1 {
			t.Fatalf("fetchAll() = %+v, want 1 resource and no error", got)
		}
		return got.resources
	}
	first := poll()
	if again := poll(); &again[0] != &first[0] {
		t.Error("the same body was decoded again, want the resources of the first poll")
	}
	b.Become(answers(body(`"get","list"`)))
	if changed := poll(); len(changed[0].Verbs) != 2 {
		t.Errorf("verbs after another body = %v, want get and list", changed[0].Verbs)
	}
	b.Become(answers(strings.Replace(body(`"get"`), "Namespaced", "Everywhere", 1)))
	for range 2 {
		if got := fetchAll(t.Context(), remote.NewFetcher(1), b, wanted, s)[gvGadgets]; got.err == nil {
			t.Error("fetchAll() of an invalid body succeeded, want an error each time")
		}
	}
	wanted = []schema.GroupVersion{{Group: "other.example.com", Version: "v1"}}
	b.Become(answers(body(`"get"`)))
	if got := fetchAll(t.Context(), remote.NewFetcher(1), b, wanted, s); len(got) != 1 || got[wanted[0]].err == nil {
		t.Errorf("fetchAll() for another group-version = %+v, want an error for it", got)
	}
}

func TestUnrequestedEncodingsAreCreatedOnDemand(t *testing.T) {
	e, err := newEncoder()
	if err != nil {
		t.Fatal(err)
	}
	list := func(group string) *document {
		g := GroupVersion{GroupVersion: schema.GroupVersion{Group: group, Version: "v1"}}
		d, err := e.document(aggregatedList([]GroupVersion{g}, func(GroupVersion) bool { return true }), aggregatedParams)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	before, after := list("a.example.com"), list("b.example.com")
	if _, err := before.encodings[respond.MediaProtobuf].request(); err != nil {
		t.Fatal(err)
	}
	prepared := map[string]bool{}
	for mediaType, encoding := range after.encodings {
		inner := encoding.make
		encoding.make = func() (*respond.Document, error) { prepared[mediaType] = true; return inner() }
	}
	if err := after.prepare(before); err != nil {
		t.Fatal(err)
	}
	if want := map[string]bool{respond.MediaProtobuf: true}; !maps.Equal(prepared, want) {
		t.Errorf("prepared encodings = %v, want %v", prepared, want)
	}
	if err := after.prepare(nil); err != nil {
		t.Fatal(err)
	}
	if want := map[string]bool{respond.MediaProtobuf: true, respond.MediaJSON: true}; !maps.Equal(prepared, want) {
		t.Errorf("prepared encodings without a former document = %v, want %v", prepared, want)
	}
}
