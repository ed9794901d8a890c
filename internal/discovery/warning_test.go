package discovery

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"portico.dev/internal/discovery/remote"
)

var deadSince = time.Date(2026, 11, 23, 18, 0, 0, 0, time.UTC)

// warnedOf returns the text of the only Warning of a response, or an empty string.
func warnedOf(t *testing.T, response *http.Response) string {
	t.Helper()
	warnings, errs := utilnet.ParseWarningHeaders(response.Header["Warning"])
	if len(errs) > 0 || len(warnings) > 1 {
		t.Fatalf("warnings = %q, errors %v, want at most one warning", response.Header["Warning"], errs)
	}
	if len(warnings) == 0 {
		return ""
	}
	return warnings[0].Text
}

const (
	widgetsAreDead = "APIService v1.example.com is unavailable (FailedDiscoveryCheck since 2026-11-23T18:00:00Z): its resources are left out"
	metricsAreDead = "APIService v1beta1.metrics.k8s.io is unavailable (MissingEndpoints since 2026-11-23T18:00:00Z): its resources are left out"
)

// die turns a route into the route of a dead backend.
func die(r *remote.Route, reason string) {
	r.Backend, r.Available, r.Reason, r.Since = nil, false, reason, deadSince
}

// deadEnv has one dead backend whose objects clients miss, and one dead backend that stays Current.
func deadEnv(t testing.TB) *env {
	keep := newMemory()
	keep.values["v1.example.com"] = knownAs(gvGadgets, `"delete","get","list"`)
	keep.values["v1beta1.metrics.k8s.io"] = knownAs(gvMetrics, `"get","list"`)
	gadgets, metrics := routeTo(nil, gvGadgets), routeTo(nil, gvMetrics)
	die(&gadgets, "FailedDiscoveryCheck")
	die(&metrics, "MissingEndpoints")
	return newEnv(t, keep, routes(gadgets, metrics)...).run(t)
}

// Only the document of a group has a Warning. kubectl reads the merged documents for every command, and --warnings-as-errors would fail
// because of an unrelated APIService.
func TestOnlyGroupDocumentsHaveWarnings(t *testing.T) {
	h := deadEnv(t)
	for name, c := range map[string]struct{ path, accept, want string }{
		"aggregated":                     {"/apis", acceptJSON, ""},
		"aggregated, protobuf":           {"/apis", acceptProtobuf, ""},
		"legacy":                         {"/apis", "application/json", ""},
		"legacy with a slash":            {"/apis/", acceptJSON + ",*/*", ""},
		"core, aggregated":               {"/api", acceptJSON, ""},
		"core, legacy":                   {"/api", "application/json", ""},
		"its group":                      {"/apis/example.com", "application/json", widgetsAreDead},
		"its group with a slash":         {"/apis/example.com/", "application/json", widgetsAreDead},
		"another group that is dead":     {"/apis/metrics.k8s.io", "application/json", metricsAreDead},
		"a group that is served here":    {"/apis/rbac.authorization.k8s.io", "application/json", ""},
		"a document that does not exist": {"/apis/none.example.com", "application/json", ""},
		"a form that does not exist":     {"/apis", "text/html", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := warnedOf(t, h.get(t, c.path, "Accept", c.accept)); got != c.want {
				t.Errorf("Warning = %q, want %q", got, c.want)
			}
		})
	}
}

func TestDeadCoreVersionHasNoWarningInMergedDocuments(t *testing.T) {
	core := routeTo(nil, gvGadgets)
	core.GroupVersion.Group, core.GroupVersion.Version, core.APIService = "", "v2", "v2."
	die(&core, "ServiceNotFound")
	h := newEnv(t, newMemory(), routes(core)...).run(t)
	want := "APIService v2. is unavailable (ServiceNotFound since 2026-11-23T18:00:00Z): its resources are left out"
	for _, path := range []string{"/api", "/apis"} {
		for _, accept := range []string{acceptJSON, "application/json"} {
			if got := warnedOf(t, h.get(t, path, "Accept", accept)); got != "" {
				t.Errorf("Warning of %s = %q, want none", path, got)
			}
		}
	}
	for path, want := range map[string]string{"/api/v2": want, "/api": "", "/apis": "", "/": ""} {
		if got := h.Current().Warning(path).Text(); got != want {
			t.Errorf("Warning(%q) = %q, want %q", path, got, want)
		}
	}
}

const widgetsPath = "/apis/example.com"

// The document of a group stays when only the reason changes. Its Warning changes, and a cache must not keep the old one.
func TestWarningFollowsVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := deadEnv(t)
		defer h.stop()
		synctest.Wait()
		const accept = "application/json"
		first := h.get(t, widgetsPath, "Accept", accept)
		tag, body := first.Header.Get("ETag"), read(t, first)
		held := h.get(t, widgetsPath, "Accept", accept, "If-None-Match", tag)
		if held.StatusCode != http.StatusNotModified || warnedOf(t, held) != "" {
			t.Errorf("response with the held tag = %d with Warning %q, want 304 without a Warning", held.StatusCode, held.Header["Warning"])
		}
		merged := h.get(t, "/apis", "Accept", accept).Header.Get("ETag")
		changeVerdict(h, func(r *remote.Route) { r.Reason, r.Since = "ServiceNotFound", deadSince.Add(time.Hour) })
		after := h.get(t, widgetsPath, "Accept", accept, "If-None-Match", tag)
		const want = "v1.example.com is unavailable (ServiceNotFound since 2026-11-23T19:00:00Z)"
		if got := warnedOf(t, after); after.StatusCode != http.StatusOK || !strings.Contains(got, want) || string(read(t, after)) != string(body) {
			t.Errorf("response with the old tag = %d with Warning %q, want 200, %q and the same body", after.StatusCode, got, want)
		}
		if got := h.get(t, "/apis", "Accept", accept, "If-None-Match", merged); got.StatusCode != http.StatusNotModified {
			t.Errorf("response for the merged document = %d, want 304", got.StatusCode)
		}
		changeVerdict(h, func(r *remote.Route) { r.Available, r.Reason, r.Since = true, "", time.Time{} })
		last := h.get(t, widgetsPath, "Accept", accept)
		if got, tag := warnedOf(t, last), last.Header.Get("ETag"); got != "" || len(tag) != 130 {
			t.Errorf("after the outage: Warning = %q, tag = %q, want no Warning and a hash alone", got, tag)
		}
	})
}

// changeVerdict changes the route of the widgets, and waits in a synctest bubble until the documents have been merged.
func changeVerdict(h *env, change func(*remote.Route)) {
	h.change(func(table *remote.Table) {
		for i := range table.Routes {
			if table.Routes[i].GroupVersion == gvGadgets {
				change(&table.Routes[i])
			}
		}
	})
	time.Sleep(time.Second) // of the bubble's clock: merging pauses between two changes
	synctest.Wait()
}

// A client that waits for another document does not wake up for another reason.
func TestChangedReasonDoesNotWakeWaitingClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := deadEnv(t)
		defer h.stop()
		synctest.Wait()
		tag := h.get(t, "/apis", "Accept", acceptJSON).Header.Get("ETag")
		answer := make(chan *http.Response)
		go func() { answer <- h.get(t, "/apis?wait=30", "Accept", acceptJSON, "If-None-Match", tag) }()
		synctest.Wait()
		changeVerdict(h, func(r *remote.Route) { r.Reason = "ServiceNotFound" })
		if got := <-answer; got.StatusCode != http.StatusNotModified {
			t.Errorf("status = %d, want 304", got.StatusCode)
		}
	})
}

// kubectl and client-go read the merged documents before a request for any resource.
func TestClientsReceiveNoWarningsOfOtherGroups(t *testing.T) {
	h := deadEnv(t)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	for name, legacy := range map[string]bool{"aggregated": false, "legacy": true} {
		t.Run(name, func(t *testing.T) {
			heard := &warningRecorder{}
			client := clientdiscovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: server.URL, WarningHandler: heard})
			client.UseLegacyDiscovery = legacy
			if _, err := client.ServerGroups(); err != nil {
				t.Fatal(err)
			}
			if len(heard.texts) != 0 {
				t.Errorf("warnings = %q, want none", heard.texts)
			}
		})
	}
}

// warningRecorder keeps the warnings that a client of client-go receives.
type warningRecorder struct {
	mu    sync.Mutex
	texts []string
}

func (r *warningRecorder) HandleWarningHeader(_ int, _, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = append(r.texts, text)
}

// Warnings are computed with the snapshot: a request costs nothing more while no group-version is stale, and the header
// otherwise.
func TestWarningCostsAtMostTwoAllocations(t *testing.T) {
	allocations := func(stale int) float64 {
		e, err := newEncoder()
		if err != nil {
			t.Fatal(err)
		}
		city := cityOf(100, stale)
		for i := range stale {
			city[i].unavailable = true
		}
		s, err := newSnapshot(e, nil, city, true, "")
		if err != nil {
			t.Fatal(err)
		}
		if (s.legacyWarnings == nil) != (stale == 0) {
			t.Fatalf("warnings with %d stale = %v, want some exactly if there are stale ones", stale, s.legacyWarnings)
		}
		m := &Merger{}
		m.current.Store(s)
		r := httptest.NewRequest(http.MethodGet, "/apis/group-0000.example.com", nil)
		r.Header.Set("Accept", "application/json")
		return testing.AllocsPerRun(100, func() { m.ServeHTTP(&nobody{header: http.Header{}}, r) })
	}
	none, some := allocations(0), allocations(50)
	// One allocation for the header's value, and one for the tag.
	if some > none+2 {
		t.Errorf("%v allocations without a warning, %v with one, want at most 2 more", none, some)
	}
	t.Logf("%v allocations without a warning, %v with one", none, some)
}

// Controllers on client-go's discovery depend on the annotation of a dead backend's APIService. With Stale they receive an
// error that names the group-version, keep their informers for it, and start none. With Current they receive its resources, and
// each list of them fails with the 503.
func TestControllersFollowDeadBackendAnnotation(t *testing.T) {
	for name, current := range map[string]bool{"stale": false, "current": true} {
		t.Run(name, func(t *testing.T) {
			h := deadEnv(t)
			h.change(func(table *remote.Table) {
				for i := range table.Routes {
					table.Routes[i].CurrentWhenUnavailable = current
				}
			})
			if current {
				h.until(t, gvGadgets, "current", func(g GroupVersion, _ bool) bool { return g.Freshness == apidiscoveryv2.DiscoveryFreshnessCurrent })
			}
			server := httptest.NewServer(h)
			t.Cleanup(server.Close)
			heard := &warningRecorder{}
			client := clientdiscovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: server.URL, WarningHandler: heard})
			for controller, ask := range map[string]func() ([]*metav1.APIResourceList, error){
				"garbage collector":             client.ServerPreferredResources,
				"namespaces and resource quota": client.ServerPreferredNamespacedResources,
			} {
				lists, err := ask()
				if found := slices.Contains(names(lists), "example.com/v1/things"); found != current {
					t.Errorf("%s: finds the resource = %t, want %t", controller, found, current)
				}
				if failed, _ := clientdiscovery.GroupDiscoveryFailedErrorGroups(err); (failed[gvGadgets] != nil) == current || current && err != nil {
					t.Errorf("%s: error = %v, want a failed group exactly if it is stale", controller, err)
				}
				if !slices.Contains(names(lists), "rbac.authorization.k8s.io/v1/roles") {
					t.Errorf("%s: resources = %v, want roles among them", controller, names(lists))
				}
			}
			if len(heard.texts) != 0 {
				t.Errorf("warnings = %q, want none", heard.texts)
			}
		})
	}
}
