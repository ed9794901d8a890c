package discovery

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/discovery/remote/remotetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var legacyGadgets = []metav1.APIResource{
	{Name: "gadgets", Kind: "Gadget", Namespaced: true, Verbs: metav1.Verbs{"delete", "get", "list"}},
	{Name: "gadgets/status", Kind: "Gadget", Namespaced: true, Verbs: metav1.Verbs{"get"}},
}

// TestBackendResponseSetsGroupVersionState covers the ways to request gadgets from a backend, and the resulting state of its group-version.
func TestBackendResponseSetsGroupVersionState(t *testing.T) {
	other := schema.GroupVersion{Group: "other.example.com", Version: "v1"}
	html := remotetest.Answers(http.StatusOK, "text/html", "<html>welcome</html>")
	for name, c := range map[string]struct {
		handler http.Handler
		want    func(GroupVersion, bool) bool
		reason  string
	}{
		"aggregated discovery": {
			handler: remotetest.Paths{"/apis": aggregated(`"1"`, serves(gvGadgets, deletable))}, want: current(1),
		},
		"aggregated discovery without our group-version, which is served none the less": {
			handler: remotetest.Paths{"/apis": aggregated(`"1"`, serves(other, readOnly)), "/apis/example.com/v1": legacyList(gvGadgets, legacyGadgets...)}, want: current(1),
		},
		"aggregated discovery that calls our group-version stale": {
			handler: remotetest.Paths{"/apis": aggregated(`"1"`, apidiscoveryv2.APIGroupDiscovery{
				ObjectMeta: metav1.ObjectMeta{Name: "example.com"},
				Versions:   []apidiscoveryv2.APIVersionDiscovery{{Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessStale}},
			})}, want: stale(0), reason: "answered 404",
		},
		"legacy discovery only": {
			handler: remotetest.Paths{"/apis/example.com/v1": legacyList(gvGadgets, legacyGadgets...)}, want: current(1),
		},
		"legacy discovery behind a plain list of groups": {
			handler: remotetest.Paths{"/apis": remotetest.Answers(200, "application/json", `{"kind":"APIGroupList"}`), "/apis/example.com/v1": legacyList(gvGadgets, legacyGadgets...)}, want: current(1),
		},
		"legacy discovery behind a redirect": {
			handler: remotetest.Paths{"/apis": remotetest.Redirects("/apis/"), "/apis/example.com/v1": legacyList(gvGadgets, legacyGadgets...)}, want: current(1),
		},
		"legacy discovery behind a flood": {
			handler: remotetest.Paths{"/apis": remotetest.Floods(maxBody+1, "application/json;"+aggregatedParams), "/apis/example.com/v1": legacyList(gvGadgets, legacyGadgets...)}, want: current(1),
		},
		"an empty list":          {handler: remotetest.Paths{"/apis/example.com/v1": legacyList(gvGadgets)}, want: current(0)},
		"nothing but errors":     {handler: remotetest.Answers(500, "text/plain", "boom"), want: stale(0), reason: "answered 500"},
		"overloaded":             {handler: remotetest.Answers(503, "text/plain", "later"), want: stale(0), reason: "answered 503"},
		"redirects everything":   {handler: remotetest.Redirects("https://127.0.0.1:1/"), want: stale(0), reason: "answered 302"},
		"a web server":           {handler: html, want: stale(0), reason: "decode"},
		"another group's list":   {handler: remotetest.Paths{"/apis/example.com/v1": legacyList(other, legacyGadgets...)}, want: stale(0), reason: "not the APIResourceList"},
		"a list of another kind": {handler: remotetest.Answers(200, "application/json", `{"kind":"Status"}`), want: stale(0), reason: `"Status"`},
		"nonsense in v2 and in the list": {
			handler: remotetest.Answers(200, "application/json;"+aggregatedParams, `{"items":[{"versions":7}]}`), want: stale(0), reason: "not the APIResourceList",
		},
		"too many resources": {
			handler: remotetest.Paths{"/apis": aggregated(`"1"`, serves(gvGadgets, make([]apidiscoveryv2.APIResourceDiscovery, maxResources+1)...))}, want: stale(0), reason: "2000",
		},
		"a resource with a slash in its name": {
			handler: remotetest.Paths{"/apis": aggregated(`"1"`, serves(gvGadgets, resource("../secrets", apidiscoveryv2.ScopeNamespace)))}, want: stale(0), reason: "no name",
		},
		"the same resource twice": {
			handler: remotetest.Paths{"/apis": aggregated(`"1"`, serves(gvGadgets, deletable, deletable))}, want: stale(0), reason: "twice",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := remotetest.NewTLS(t, "ns/gadgets:443", c.handler)
			h := newEnv(t, newMemory(), routes(routeTo(b, gvGadgets))...).run(t)
			h.until(t, gvGadgets, "as wanted", func(g GroupVersion, ok bool) bool {
				return c.want(g, ok) && strings.Contains(g.Reason, c.reason) && (c.reason != "" || g.Reason == "")
			})
			if _, ok := h.Current().Lookup(other); ok {
				t.Errorf("%v is in discovery, want only registered group-versions", other)
			}
		})
	}
}

func TestHangingBackendDelaysNoOtherGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := remotetest.NewInProcess("ns/hangs:443", remotetest.Hangs())
		answers := remotetest.NewInProcess("ns/answers:443", remotetest.Paths{"/apis": aggregated(`"1"`, serves(gvMetrics, readOnly))})
		began := time.Now()
		h := newEnv(t, newMemory(), routes(routeTo(hangs, gvGadgets), routeTo(answers, gvMetrics))...).run(t)
		if response := h.get(t, "/apis"); response.StatusCode != http.StatusOK {
			t.Errorf("GET /apis = %d, want 200", response.StatusCode)
		}
		h.until(t, gvMetrics, "current", current(1))
		h.until(t, gvGadgets, "stale", stale(0))
		h.stop()
		if took := time.Since(began); took >= fetchTimeout {
			t.Errorf("the test took %s, want less than %s", took, fetchTimeout)
		}
	})
}

func TestBackendGroupVersionsShareOneFetch(t *testing.T) {
	v2 := schema.GroupVersion{Group: "example.com", Version: "v2"}
	b := remotetest.NewTLS(t, "ns/gadgets:443", remotetest.Paths{"/apis": aggregated(`"1"`, serves(gvGadgets, deletable), serves(v2, another), serves(gvMetrics, readOnly))})
	h := newEnv(t, newMemory(), routes(routeTo(b, gvGadgets), routeTo(b, v2), routeTo(b, gvMetrics))...).run(t)
	for _, gv := range []schema.GroupVersion{gvGadgets, v2, gvMetrics} {
		h.until(t, gv, "current", current(1))
	}
	requests := b.Requests()
	if len(requests) != 1 {
		t.Fatalf("%d requests, want 1", len(requests))
	}
	if user, group := requests[0].Header.Get("X-Remote-User"), requests[0].Header.Get("X-Remote-Group"); user != "system:kube-aggregator" || group != "system:masters" {
		t.Errorf("identity = user %q, group %q, want system:kube-aggregator and system:masters", user, group)
	}
}

// A changed verdict takes effect at once, and triggers a poll at once, with the backend's ETag.
func TestVerdictChangeTakesEffectAndPolls(t *testing.T) {
	b := remotetest.NewTLS(t, "ns/gadgets:443", remotetest.Paths{"/apis": aggregated(`"1"`, serves(gvGadgets, deletable))})
	h := newEnv(t, newMemory(), routes(routeTo(b, gvGadgets))...).run(t)
	h.until(t, gvGadgets, "current", current(1))
	before := len(b.Requests())

	last := len(h.table.Routes) - 1
	h.change(func(table *remote.Table) {
		table.Routes[last].Available, table.Routes[last].Reason = false, "FailedDiscoveryCheck"
	})
	h.until(t, gvGadgets, "stale, with its reason", func(g GroupVersion, ok bool) bool {
		return stale(1)(g, ok) && g.Reason == "FailedDiscoveryCheck"
	})
	h.change(func(table *remote.Table) { table.Routes[last].Available = true })
	h.until(t, gvGadgets, "current", current(1))
	waitFor(t, "a round because of the flip", func() bool { return len(b.Requests()) > before })
	if tag := b.Requests()[before].Header.Get("If-None-Match"); tag != `"1"` {
		t.Errorf("If-None-Match = %q, want %q", tag, `"1"`)
	}
}

func TestCorrectDiscoveryReplacesWrongSoon(t *testing.T) {
	truth := remotetest.Paths{"/apis": aggregated(`"1"`, serves(gvGadgets, deletable))}
	b := remotetest.NewTLS(t, "ns/gadgets:443", truth)
	h := newEnv(t, newMemory(), routes(routeTo(b, gvGadgets))...).run(t)
	h.until(t, gvGadgets, "current", current(1))
	b.Become(remotetest.Paths{"/apis": aggregated(`"2"`, serves(gvGadgets))})
	turn := func(up bool) { // which triggers a poll
		h.change(func(table *remote.Table) { table.Routes[len(table.Routes)-1].Available = up })
	}
	turn(false)
	h.until(t, gvGadgets, "down", stale(1))
	turn(true)
	h.until(t, gvGadgets, "doubted", func(g GroupVersion, ok bool) bool {
		return stale(1)(g, ok) && strings.Contains(g.Reason, "leaves out")
	})
	b.Become(truth)
	h.until(t, gvGadgets, "believed", current(1)) // within ten seconds: rounds are a minute apart
}

func TestRestartServesStoredDiscoveryOfDeadBackends(t *testing.T) {
	keep := newMemory()
	gadgets := remotetest.NewTLS(t, "ns/gadgets:443", remotetest.Paths{"/apis": aggregated(`"1"`, serves(gvGadgets, deletable))})
	metrics := remotetest.NewTLS(t, "ns/metrics:443", remotetest.Paths{"/apis": aggregated(`"1"`, serves(gvMetrics, readOnly))})
	first := newEnv(t, keep, routes(routeTo(gadgets, gvGadgets), routeTo(metrics, gvMetrics))...).run(t)
	first.until(t, gvGadgets, "current", current(1))
	first.until(t, gvMetrics, "current", current(1))
	waitFor(t, "both to be kept", func() bool { return keep.has("v1.example.com") && keep.has("v1beta1.metrics.k8s.io") })
	first.stop()

	gadgets.Become(remotetest.Hangs())
	metrics.Become(remotetest.Hangs())
	dead := func(b remote.Backend, gv schema.GroupVersion) remote.Route {
		r := routeTo(b, gv)
		r.Available = false
		return r
	}
	second := newEnv(t, keep, routes(dead(gadgets, gvGadgets), dead(metrics, gvMetrics))...).run(t)
	// The first snapshot has the stored resources, and no later one is needed.
	if g, ok := second.Current().Lookup(gvGadgets); !stale(1)(g, ok) {
		t.Errorf("gadgets are %s with %d resources, want Stale with 1", g.Freshness, len(g.Resources))
	}
	if g, ok := second.Current().Lookup(gvMetrics); !current(1)(g, ok) {
		t.Errorf("metrics are %s with %d resources, want Current with 1", g.Freshness, len(g.Resources))
	}
	mapping, err := second.Current().RESTMapper().ResourceFor(schema.GroupVersionResource{Resource: "pods", Group: "metrics.k8s.io"})
	if err == nil { // readOnly has no kind, so it cannot be mapped
		t.Errorf("ResourceFor(pods) = %s, want an error for a resource without a kind", mapping)
	}
}

func TestStoredDiscoveryIsDeletedWithItsRegistration(t *testing.T) {
	keep := newMemory()
	keep.values["v1.removed.example.com"] = []byte(`{"uid":"uid","resources":[]}`)
	keep.values["v1.broken.example.com"] = []byte(`{"uid":`)
	b := remotetest.NewTLS(t, "ns/gadgets:443", remotetest.Paths{"/apis": aggregated(`"1"`, serves(gvGadgets, deletable))})
	h := newEnv(t, keep, routes(routeTo(b, gvGadgets))...).run(t)
	waitFor(t, "gadgets to be kept", func() bool { return keep.has("v1.example.com") })
	waitFor(t, "what nobody registered to go", func() bool { return !keep.has("v1.removed.example.com") && !keep.has("v1.broken.example.com") })
	h.change(func(table *remote.Table) { table.Routes = localRoutes() })
	waitFor(t, "gadgets to go", func() bool { return !keep.has("v1.example.com") })
	if _, ok := h.Current().Lookup(gvGadgets); ok {
		h.until(t, gvGadgets, "gone", func(_ GroupVersion, ok bool) bool { return !ok })
	}
}

// A record of a newer release is not decoded in part: the resources are unknown until the backend answers, and the value is
// kept until then.
func TestStoredDiscoveryOfNewerReleaseIsKept(t *testing.T) {
	value := []byte(`{"version":2,"uid":"uid","resources":[]}`)
	if _, err := decodeRecord(value); !errors.Is(err, remote.ErrNewerRelease) {
		t.Fatalf("decodeRecord() of a newer release: error = %v, want %v", err, remote.ErrNewerRelease)
	}
	keep := newMemory()
	keep.values["v1.example.com"] = value
	b := remotetest.NewTLS(t, "ns/gadgets:443", remotetest.Hangs())
	h := newEnv(t, keep, routes(routeTo(b, gvGadgets))...).run(t)
	if g, ok := h.Current().Lookup(gvGadgets); !ok || !stale(0)(g, ok) || !keep.has("v1.example.com") {
		t.Errorf("gadgets are %s with %d resources, want Stale with 0 and the record kept", g.Freshness, len(g.Resources))
	}
	b.Become(remotetest.Paths{"/apis": aggregated(`"1"`, serves(gvGadgets, deletable))})
	h.change(func(table *remote.Table) { table.Routes[len(table.Routes)-1].Revision = "2" }) // triggers another poll
	h.until(t, gvGadgets, "current", current(1))
	waitFor(t, "it to be stored anew", func() bool {
		stored, err := decodeRecord(keep.get("v1.example.com"))
		return err == nil && stored.last.Version == knownVersion && len(stored.last.Resources) == 1
	})
}

func TestUnavailableStorageDelaysNothing(t *testing.T) {
	keep := newMemory()
	b := remotetest.NewTLS(t, "ns/gadgets:443", remotetest.Paths{"/apis": aggregated(`"1"`, serves(gvGadgets, deletable))})
	h := newEnv(t, keep).run(t)
	keep.setBroken(true)
	h.change(func(table *remote.Table) { table.Routes = routes(routeTo(b, gvGadgets)) })
	h.until(t, gvGadgets, "current", current(1))
	keep.setBroken(false)
	waitFor(t, "gadgets to be kept after all", func() bool { return keep.has("v1.example.com") })
}

func TestChangedLocalGroupsArePublished(t *testing.T) {
	h := newEnv(t, newMemory(), localRoutes()...).run(t)
	gv := schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	h.until(t, gv, "current", current(1))
	h.mu.Lock()
	h.local = localGroups()
	h.local.Groups[0].Versions[0].Resources = append(h.local.Groups[0].Versions[0].Resources, deletable)
	close(h.localChanged)
	h.localChanged = make(chan struct{})
	h.mu.Unlock()
	h.until(t, gv, "longer", current(2))
}

func TestRemoteRouteReplacesLocalGroupVersion(t *testing.T) {
	gv := schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	b := remotetest.NewTLS(t, "ns/rbac:443", remotetest.Hangs())
	h := newEnv(t, newMemory(), routeTo(b, gv)).run(t)
	h.until(t, gv, "stale", stale(0))
}

func waitFor(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("condition not met within a minute: want %s", what)
		}
	}
}
