package discovery

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
)

func metricResource(name string, gv schema.GroupVersion, subresources ...string) apidiscoveryv2.APIResourceDiscovery {
	kind := &metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: "MetricValueList"}
	r := apidiscoveryv2.APIResourceDiscovery{Resource: name, Scope: apidiscoveryv2.ScopeNamespace, ResponseKind: &metav1.GroupVersionKind{}, Verbs: []string{}}
	if len(subresources) == 0 {
		r.ResponseKind, r.Verbs = kind, []string{"get", "list", "watch", "create", "delete"}
	}
	for _, sub := range subresources {
		r.Subresources = append(r.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: sub, ResponseKind: kind, Verbs: []string{"get"}})
	}
	return r
}

// unionOf returns the snapshot of one group-version with these backends. The backend of a nil record has never answered.
func unionOf(t *testing.T, gv schema.GroupVersion, parts []remote.Route, records map[string]*record) (*Snapshot, GroupVersion) {
	t.Helper()
	whole := remote.Route{GroupVersion: gv, APIService: gv.Version + "." + gv.Group, Available: true}
	table := remote.Table{Synced: true}
	for _, p := range parts {
		whole.Parts = append(whole.Parts, p.APIService)
	}
	table.Routes = append([]remote.Route{whole}, parts...)
	encoder, err := newEncoder()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSnapshot(encoder, nil, mergeGroupVersions(Local{}, table, records), true, "")
	if err != nil {
		t.Fatal(err)
	}
	found, ok := s.Lookup(gv)
	if !ok || len(s.GroupVersions()) != 1 {
		t.Fatalf("group-versions = %+v, want only %v", s.GroupVersions(), gv)
	}
	return s, found
}

func allNames(resources []apidiscoveryv2.APIResourceDiscovery) string {
	var out []string
	for _, r := range resources {
		out = append(out, r.Resource+"["+strings.Join(r.Verbs, ",")+"]")
		for _, sub := range r.Subresources {
			out = append(out, r.Resource+"/"+sub.Subresource)
		}
	}
	return strings.Join(out, " ")
}

func TestGroupVersionHasResourcesOfAllBackends(t *testing.T) {
	gv := schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: "v1beta1"}
	parts := []remote.Route{
		{GroupVersion: gv, APIService: "x/a", PartOf: "x", Available: true}, {GroupVersion: gv, APIService: "x/b", PartOf: "x", Available: true},
		{GroupVersion: gv, APIService: "x/c", PartOf: "x", Reason: "MissingEndpoints"},
	}
	pods := metricResource("pods", gv, "requests", "both")
	records := map[string]*record{
		"x/a": {answered: true, last: &known{Resources: []apidiscoveryv2.APIResourceDiscovery{pods}}},
		"x/b": {answered: true, last: &known{Resources: []apidiscoveryv2.APIResourceDiscovery{metricResource("pods", gv, "both", "queue"), metricResource("nodes", gv, "fans")}}},
		// Dead: its resources stay, and none of them matters to a namespace controller.
		"x/c": {last: &known{Resources: []apidiscoveryv2.APIResourceDiscovery{metricResource("jobs", gv, "late")}}},
	}
	s, g := unionOf(t, gv, parts, records)
	if got, want := allNames(g.Resources), "pods[] pods/requests pods/both pods/queue nodes[] nodes/fans jobs[] jobs/late"; got != want {
		t.Errorf("resources = %s, want %s", got, want)
	}
	if g.Freshness != apidiscoveryv2.DiscoveryFreshnessCurrent || g.Reason != "MissingEndpoints" {
		t.Errorf("freshness = %s because of %q, want Current because of MissingEndpoints", g.Freshness, g.Reason)
	}
	if len(pods.Subresources) != 2 {
		t.Errorf("the record of a backend has %d subresources, want 2 as before", len(pods.Subresources))
	}
	m := &Merger{}
	m.current.Store(s)
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/apis/custom.metrics.k8s.io/v1beta1", nil))
	for _, want := range []string{`"kind":"APIResourceList"`, `"groupVersion":"custom.metrics.k8s.io/v1beta1"`, `{"name":"pods/queue","singularName":"","namespaced":true,"kind":"MetricValueList","verbs":["get"]}`} {
		if w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("list = %d %s, want 200 with %s", w.Code, w.Body, want)
		}
	}
	if strings.Contains(w.Body.String(), `"name":"pods",`) {
		t.Errorf("list = %s, want no resource that is only the parent of subresources", w.Body)
	}
	w = httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/apis/custom.metrics.k8s.io/v2", nil))
	if w.Code != 404 {
		t.Errorf("status of another version = %d, want 404", w.Code)
	}
}

// An APIService gets an APIRoute. Its resources stay in discovery only until the backends are polled.
func TestNewAPIRouteKeepsResourcesUntilPolled(t *testing.T) {
	gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
	widgets, gadgets := metricResource("widgets", gv), metricResource("gadgets", gv)
	before := &record{answered: true, last: &known{Resources: []apidiscoveryv2.APIResourceDiscovery{widgets}}}
	newBackend := func(available, untested bool) remote.Route {
		return remote.Route{GroupVersion: gv, APIService: "x/a", PartOf: "x", UID: "route", Available: available, Untested: untested, Reason: "Because"}
	}
	asked := &record{answered: true, last: &known{UID: "route", Resources: []apidiscoveryv2.APIResourceDiscovery{gadgets}}}
	for name, c := range map[string]struct {
		part      remote.Route
		record    *record
		before    *record
		freshness apidiscoveryv2.DiscoveryFreshness
		resources string
	}{
		"not probed yet":                     {newBackend(false, true), &record{}, before, "Current", "widgets"},
		"probed, and not asked yet":          {newBackend(true, false), &record{}, before, "Current", "widgets"},
		"asked":                              {newBackend(true, false), asked, before, "Current", "gadgets"},
		"asked, without an answer":           {newBackend(true, false), &record{failure: "no answer"}, before, "Stale", ""},
		"found dead":                         {newBackend(false, false), &record{}, before, "Stale", ""},
		"nothing is known from before":       {newBackend(false, true), &record{}, &record{}, "Stale", ""},
		"what is known is of another object": {newBackend(false, true), &record{}, &record{last: &known{UID: "other", Resources: before.last.Resources}}, "Stale", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, g := unionOf(t, gv, []remote.Route{c.part}, map[string]*record{"x/a": c.record, "v1.example.com": c.before})
			var names []string
			for _, r := range g.Resources {
				names = append(names, r.Resource)
			}
			if got := strings.Join(names, " "); g.Freshness != c.freshness || got != c.resources {
				t.Errorf("freshness = %s with %q, want %s with %q", g.Freshness, got, c.freshness, c.resources)
			}
		})
	}
}

func TestBackendOfOtherVersionIsListedWithReadVerbs(t *testing.T) {
	from, to := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}, schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}
	resources := []apidiscoveryv2.APIResourceDiscovery{metricResource("nodes", from)}
	_, g := unionOf(t, to, []remote.Route{{GroupVersion: from, APIService: "x/a", PartOf: "x", Available: true}},
		map[string]*record{"x/a": {answered: true, last: &known{Resources: resources}}})
	if got := allNames(g.Resources); got != "nodes[get,list,watch]" || g.Resources[0].ResponseKind.Version != "v1" {
		t.Errorf("resources = %s of %+v, want %s of version v1", got, g.Resources[0].ResponseKind, "nodes[get,list,watch]")
	}
	if resources[0].ResponseKind.Version != "v1beta1" || len(resources[0].Verbs) != 5 {
		t.Errorf("record of the backend = %+v, want it unchanged", resources[0])
	}
}

func TestUnansweredMetricsServerKeepsOtherResources(t *testing.T) {
	gv := schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: "v1beta1"}
	parts := []remote.Route{{GroupVersion: gv, APIService: "x/a", PartOf: "x", Available: true}, {GroupVersion: gv, APIService: "x/b", PartOf: "x", Reason: "ServiceNotFound"}}
	records := map[string]*record{"x/a": {answered: true, last: &known{Resources: []apidiscoveryv2.APIResourceDiscovery{metricResource("pods", gv, "m")}}}, "x/b": {}}
	if _, g := unionOf(t, gv, parts, records); g.Freshness != apidiscoveryv2.DiscoveryFreshnessCurrent || len(g.Resources) != 1 || g.Reason != "ServiceNotFound" {
		t.Errorf("freshness = %s because of %q with %s, want Current because of ServiceNotFound with 1 resource", g.Freshness, g.Reason, allNames(g.Resources))
	}
	records["x/a"] = &record{}
	if _, g := unionOf(t, gv, parts, records); g.Freshness != apidiscoveryv2.DiscoveryFreshnessStale {
		t.Errorf("freshness without any answer = %s, want Stale", g.Freshness)
	}
}

func TestStaleBackendMakesGroupVersionStale(t *testing.T) {
	gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
	parts := []remote.Route{{GroupVersion: gv, APIService: "x/a", PartOf: "x", Available: true}, {GroupVersion: gv, APIService: "x/b", PartOf: "x", Reason: "MissingEndpoints"}}
	_, g := unionOf(t, gv, parts, map[string]*record{
		"x/a": {answered: true, last: &known{}}, "x/b": {last: &known{Resources: []apidiscoveryv2.APIResourceDiscovery{metricResource("widgets", gv)}}},
	})
	if g.Freshness != apidiscoveryv2.DiscoveryFreshnessStale || g.Reason != "MissingEndpoints" {
		t.Errorf("freshness = %s because of %q, want Stale because of MissingEndpoints: a namespace controller would miss the widgets", g.Freshness, g.Reason)
	}
}

func TestCustomResourcesAreDiscoveredWithOtherResources(t *testing.T) {
	gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
	kind := func(name string) apidiscoveryv2.APIResourceDiscovery {
		return apidiscoveryv2.APIResourceDiscovery{Resource: name, Scope: apidiscoveryv2.ScopeNamespace, Verbs: []string{"list"}, ResponseKind: &metav1.GroupVersionKind{Kind: name}}
	}
	local := Local{Groups: []apidiscoveryv2.APIGroupDiscovery{{
		ObjectMeta: metav1.ObjectMeta{Name: gv.Group}, Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{kind("ponds"), kind("widgets")}}},
	}}}
	table := remote.Table{Synced: true, Routes: []remote.Route{
		{GroupVersion: gv, APIService: "v1.example.com", Available: true, Parts: []string{"v1.example.com/a", "v1.example.com/b"}},
		{GroupVersion: gv, APIService: "v1.example.com/a", PartOf: "v1.example.com", Available: true, UID: "u"},
		{GroupVersion: gv, APIService: "v1.example.com/b", PartOf: "v1.example.com", Available: true, Local: true},
	}}
	records := map[string]*record{"v1.example.com": {}, "v1.example.com/a": {}}
	found := mergeGroupVersions(local, table, records)
	if len(found) != 1 || allNames(found[0].Resources) != "ponds[list] widgets[list]" || found[0].Local {
		t.Errorf("group-versions before the server's first answer = %+v, want one with ponds and widgets", found)
	}
	if found[0].Freshness != apidiscoveryv2.DiscoveryFreshnessStale {
		t.Errorf("freshness = %s, want Stale: the server's resources are unknown", found[0].Freshness)
	}
}
