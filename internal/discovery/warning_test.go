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

// warnedOf returns the text of the only Warning of an answer, empty when it has none.
func warnedOf(t *testing.T, response *http.Response) string {
	t.Helper()
	warnings, errs := utilnet.ParseWarningHeaders(response.Header["Warning"])
	if len(errs) > 0 || len(warnings) > 1 {
		t.Fatalf("warnings: %q, %v", response.Header["Warning"], errs)
	}
	if len(warnings) == 0 {
		return ""
	}
	return warnings[0].Text
}

const (
	widgetsAreDead  = "APIService v1.example.com is unavailable (FailedDiscoveryCheck since 2026-11-23T18:00:00Z): its resources are left out"
	bothAreDead     = "APIService v1.example.com is unavailable (FailedDiscoveryCheck since 2026-11-23T18:00:00Z); APIService v1beta1.metrics.k8s.io is unavailable (MissingEndpoints since 2026-11-23T18:00:00Z): their resources are left out"
	metricsAreDead  = "APIService v1beta1.metrics.k8s.io is unavailable (MissingEndpoints since 2026-11-23T18:00:00Z): its resources are left out"
	newNotAnswering = "APIService v1.example.com is stale (the backend has not answered yet): its resources are left out"
)

// die makes a route that of a dead backend.
func die(r *remote.Route, reason string) {
	r.Backend, r.Available, r.Reason, r.Since = nil, false, reason, deadSince
}

// deadEnv has a backend that is dead and leaves clients without its objects, and one that is dead and stays Current.
func deadEnv(t testing.TB) *env {
	keep := newMemory()
	keep.values["v1.example.com"] = knownAs(gvGadgets, `"delete","get","list"`)
	keep.values["v1beta1.metrics.k8s.io"] = knownAs(gvMetrics, `"get","list"`)
	gadgets, metrics := routeTo(nil, gvGadgets), routeTo(nil, gvMetrics)
	die(&gadgets, "FailedDiscoveryCheck")
	die(&metrics, "MissingEndpoints")
	return newEnv(t, keep, routes(gadgets, metrics)...).run(t)
}

// Aggregated discovery warns of what is Stale; legacy discovery of each group-version whose own list of resources fails.
func TestWarningsByDocument(t *testing.T) {
	h := deadEnv(t)
	for name, c := range map[string]struct{ path, accept, want string }{
		"aggregated":                     {"/apis", acceptJSON, widgetsAreDead},
		"aggregated, protobuf":           {"/apis", acceptProtobuf, widgetsAreDead},
		"legacy":                         {"/apis", "application/json", bothAreDead},
		"legacy with a slash":            {"/apis/", acceptJSON + ",*/*", bothAreDead},
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
				t.Errorf("warns of %q, want %q", got, c.want)
			}
		})
	}
}

func TestWarningOfADeadCoreVersion(t *testing.T) {
	core := routeTo(nil, gvGadgets)
	core.GroupVersion.Group, core.GroupVersion.Version, core.APIService = "", "v2", "v2."
	die(&core, "ServiceNotFound")
	h := newEnv(t, newMemory(), routes(core)...).run(t)
	want := "APIService v2. is unavailable (ServiceNotFound since 2026-11-23T18:00:00Z): its resources are left out"
	for _, accept := range []string{acceptJSON, "application/json"} {
		if got := warnedOf(t, h.get(t, "/api", "Accept", accept)); got != want {
			t.Errorf("/api warns of %q", got)
		}
		if got := warnedOf(t, h.get(t, "/apis", "Accept", accept)); got != "" {
			t.Errorf("/apis warns of %q", got)
		}
	}
	if h.Current().Warning("/").Text() != want || h.Current().Warning("/api/v2").Text() != want || h.Current().Warning("/apis") != nil {
		t.Error("the snapshot warns of something else")
	}
}

// The documents stay when only the reason changes; the warning does not, nor may a cache keep the old one.
func TestWarningFollowsTheVerdict(t *testing.T) {
	h := deadEnv(t)
	for _, accept := range []string{acceptJSON, "application/json"} {
		first := h.get(t, "/apis", "Accept", accept)
		tag, body := first.Header.Get("ETag"), read(t, first)
		held := h.get(t, "/apis", "Accept", accept, "If-None-Match", tag)
		if held.StatusCode != http.StatusNotModified || warnedOf(t, held) != "" {
			t.Errorf("%s: held, it is answered with %d and %q", accept, held.StatusCode, held.Header["Warning"])
		}
		h.change(func(table *remote.Table) {
			for i := range table.Routes {
				if table.Routes[i].GroupVersion == gvGadgets {
					table.Routes[i].Reason, table.Routes[i].Since = "Reason"+tag[1:5], deadSince.Add(time.Hour)
				}
			}
		})
		untilWarned(t, h, accept, "v1.example.com is unavailable (Reason"+tag[1:5]+" since 2026-11-23T19:00:00Z)")
		after := h.get(t, "/apis", "Accept", accept, "If-None-Match", tag)
		if after.StatusCode != http.StatusOK || string(read(t, after)) != string(body) {
			t.Errorf("%s: the document with the old warning is answered with %d", accept, after.StatusCode)
		}
	}
	// It answers probes again, and legacy clients can use it before its documents have been fetched.
	h.change(func(table *remote.Table) {
		for i := range table.Routes {
			if r := &table.Routes[i]; !r.Local {
				r.Available, r.Reason, r.Since = true, "", time.Time{}
			}
		}
	})
	untilWarned(t, h, acceptJSON, newNotAnswering)
	if got := warnedOf(t, h.get(t, "/apis", "Accept", "application/json")); got != "" {
		t.Errorf("legacy discovery still warns of %q", got)
	}
	if tag := h.get(t, "/apis", "Accept", "application/json").Header.Get("ETag"); len(tag) != 130 {
		t.Errorf("without a warning the tag is %s", tag)
	}
}

func untilWarned(t *testing.T, h *env, accept, want string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		replaced := h.Changed()
		got := warnedOf(t, h.get(t, "/apis", "Accept", accept))
		if strings.Contains(got, want) {
			return
		}
		select {
		case <-replaced:
		case <-time.After(time.Until(deadline)):
			t.Fatalf("it warns of %q, want %q", got, want)
		}
	}
}

// Somebody who waits for a change learns that the reason has changed.
func TestWaitForAWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := deadEnv(t)
		synctest.Wait()
		tag := h.get(t, "/apis", "Accept", acceptJSON).Header.Get("ETag")
		if unchanged := h.get(t, "/apis?wait=3", "Accept", acceptJSON, "If-None-Match", tag); unchanged.StatusCode != http.StatusNotModified || warnedOf(t, unchanged) != "" {
			t.Errorf("without a change it is %d, %v", unchanged.StatusCode, unchanged.Header)
		}
		answer := make(chan *http.Response)
		go func() { answer <- h.get(t, "/apis?wait=30", "Accept", acceptJSON, "If-None-Match", tag) }()
		synctest.Wait()
		h.change(func(table *remote.Table) {
			for i := range table.Routes {
				if table.Routes[i].GroupVersion == gvGadgets {
					table.Routes[i].Reason = "ServiceNotFound"
				}
			}
		})
		if got := <-answer; got.StatusCode != http.StatusOK || !strings.Contains(warnedOf(t, got), "ServiceNotFound") {
			t.Errorf("it is %d with %q", got.StatusCode, got.Header["Warning"])
		}
		h.stop()
	})
}

// client-go hands every warning to its handler, once for each of its two requests that has one.
func TestClientsAreWarned(t *testing.T) {
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
			want := widgetsAreDead
			if legacy {
				want = bothAreDead
			}
			if len(heard.texts) != 1 || heard.texts[0] != want {
				t.Errorf("it was warned of %q", heard.texts)
			}
		})
	}
}

// warningRecorder keeps what a client of client-go is warned of.
type warningRecorder struct {
	mu    sync.Mutex
	texts []string
}

func (r *warningRecorder) HandleWarningHeader(_ int, _, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = append(r.texts, text)
}

// Warnings are made with the snapshot: a request costs nothing more while nothing is stale, and the header otherwise.
func TestWarningsCostARequestLittle(t *testing.T) {
	allocations := func(stale int) float64 {
		e, err := newEncoder()
		if err != nil {
			t.Fatal(err)
		}
		s, err := newSnapshot(e, nil, cityOf(100, stale), true, "")
		if err != nil {
			t.Fatal(err)
		}
		if (s.warnings == nil) != (stale == 0) {
			t.Fatalf("warnings with %d stale: %v", stale, s.warnings)
		}
		m := &Merger{}
		m.current.Store(s)
		r := httptest.NewRequest(http.MethodGet, "/apis", nil)
		r.Header.Set("Accept", acceptJSON)
		return testing.AllocsPerRun(100, func() { m.ServeHTTP(&nobody{header: http.Header{}}, r) })
	}
	none, some := allocations(0), allocations(50)
	// The value of the header, and the tag.
	if some > none+2 {
		t.Errorf("%v allocations without a warning, %v with one", none, some)
	}
	t.Logf("%v allocations without a warning, %v with one", none, some)
}

// What controllers that are built on client-go's discovery are told of a dead backend, by the annotation of its APIService.
// With Stale they get an error that names the group-version, keep the informers that they have for it, and start none. With
// Current they get its resources, and each list of them fails with the 503.
func TestControllersWithADeadBackend(t *testing.T) {
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
					t.Errorf("%s: finds the resource: %t", controller, found)
				}
				if failed, _ := clientdiscovery.GroupDiscoveryFailedErrorGroups(err); (failed[gvGadgets] != nil) == current || current && err != nil {
					t.Errorf("%s: the error is %v", controller, err)
				}
				if !slices.Contains(names(lists), "rbac.authorization.k8s.io/v1/roles") {
					t.Errorf("%s: the others are %v", controller, names(lists))
				}
			}
			if (len(heard.texts) == 0) != current {
				t.Errorf("warned of %q", heard.texts)
			}
		})
	}
}
