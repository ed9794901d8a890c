package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
)

// env is a Merger with inputs that a test can change.
type env struct {
	*Merger

	mu                    sync.Mutex
	table                 remote.Table
	local                 Local
	changed, localChanged chan struct{}
	stop                  func()
}

// newEnv returns an env that does not run yet.
func newEnv(t testing.TB, storage remote.LastKnown, routes ...remote.Route) *env {
	t.Helper()
	h := &env{table: remote.Table{Routes: routes, Synced: true}, local: localGroups(), changed: make(chan struct{}), localChanged: make(chan struct{})}
	m, err := New(Config{
		Local:        func() Local { h.mu.Lock(); defer h.mu.Unlock(); return h.local },
		Routes:       func() remote.Table { h.mu.Lock(); defer h.mu.Unlock(); return h.table },
		Changed:      func() <-chan struct{} { h.mu.Lock(); defer h.mu.Unlock(); return h.changed },
		Storage:      storage,
		LocalChanged: func() <-chan struct{} { h.mu.Lock(); defer h.mu.Unlock(); return h.localChanged },
		Logger:       zaptest.NewLogger(t),
		Address:      "portico.example:6443",
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Merger = m
	return h
}

// run runs the Merger until the test ends or h.stop is called, and returns when it is ready.
func (h *env) run(t testing.TB) *env {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run failed: %v, want no error", err)
		}
	})
	t.Cleanup(h.stop)
	select {
	case <-h.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the Merger is not ready within a minute, want Ready closed")
	}
	return h
}

// change edits the table and announces it.
func (h *env) change(edit func(*remote.Table)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	routes := append([]remote.Route(nil), h.table.Routes...)
	h.table.Routes = routes
	edit(&h.table)
	close(h.changed)
	h.changed = make(chan struct{})
}

// until waits until a group-version meets the condition.
func (h *env) until(t testing.TB, gv schema.GroupVersion, what string, is func(GroupVersion, bool) bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		s := h.Current()
		g, ok := s.Lookup(gv)
		if is(g, ok) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is %s with %d resources (%s) after a minute, want %s", gv, g.Freshness, len(g.Resources), g.Reason, what)
		}
		select {
		case <-s.replaced:
		case <-time.After(20 * time.Millisecond): // a reason is not part of any document
		}
	}
}

func current(resources int) func(GroupVersion, bool) bool {
	return func(g GroupVersion, ok bool) bool {
		return ok && g.Freshness == apidiscoveryv2.DiscoveryFreshnessCurrent && len(g.Resources) == resources
	}
}

func stale(resources int) func(GroupVersion, bool) bool {
	return func(g GroupVersion, ok bool) bool {
		return ok && g.Freshness == apidiscoveryv2.DiscoveryFreshnessStale && len(g.Resources) == resources
	}
}

// get sends a request as a client does.
func (h *env) get(t testing.TB, target string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// memory is a LastKnown without etcd.
type memory struct {
	mu     sync.Mutex
	values map[string][]byte
	broken bool
}

func newMemory() *memory { return &memory{values: map[string][]byte{}} }

func (m *memory) Load(context.Context) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.values), m.failure()
}

func (m *memory) Save(_ context.Context, name string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.broken {
		m.values[name] = value
	}
	return m.failure()
}

func (m *memory) Delete(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.broken {
		delete(m.values, name)
	}
	return m.failure()
}

func (m *memory) failure() error {
	if m.broken {
		return fmt.Errorf("no storage")
	}
	return nil
}

func (m *memory) setBroken(broken bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = broken
}

func (m *memory) get(name string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.values[name]
}

func (m *memory) has(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.values[name]
	return ok
}

// sharedMemory is a memory that can be followed.
type sharedMemory struct {
	*memory
	followers []chan string
}

func newSharedMemory() *sharedMemory { return &sharedMemory{memory: newMemory()} }

func (b *sharedMemory) Save(ctx context.Context, name string, value []byte) error {
	err := b.memory.Save(ctx, name, value)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.followers {
		f <- name
	}
	return err
}

func (b *sharedMemory) Follow(ctx context.Context, saved func(name string, value []byte)) {
	names := make(chan string, 100)
	b.mu.Lock()
	b.followers = append(b.followers, names)
	b.mu.Unlock()
	values, _ := b.Load(ctx)
	for name, value := range values {
		saved(name, value)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-names:
			values, _ := b.Load(ctx)
			saved(name, values[name])
		}
	}
}

func localGroups() Local {
	kind := func(g, v, k string) *metav1.GroupVersionKind {
		return &metav1.GroupVersionKind{Group: g, Version: v, Kind: k}
	}
	group := func(name string, versions ...apidiscoveryv2.APIVersionDiscovery) apidiscoveryv2.APIGroupDiscovery {
		return apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}, Versions: versions}
	}
	return Local{
		Core: []apidiscoveryv2.APIGroupDiscovery{group("", apidiscoveryv2.APIVersionDiscovery{Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{
			{
				Resource: "namespaces", ResponseKind: kind("", "v1", "Namespace"), Scope: apidiscoveryv2.ScopeCluster, SingularResource: "namespace",
				Verbs: []string{"create", "delete", "get", "list"}, ShortNames: []string{"ns"},
				Subresources: []apidiscoveryv2.APISubresourceDiscovery{{Subresource: "status", ResponseKind: kind("", "v1", "Namespace"), Verbs: []string{"get"}}},
			},
			{
				Resource: "bindings", Scope: apidiscoveryv2.ScopeNamespace, SingularResource: "binding", Verbs: []string{"create"},
				Subresources: []apidiscoveryv2.APISubresourceDiscovery{{Subresource: "odd"}},
			},
		}})},
		Groups: []apidiscoveryv2.APIGroupDiscovery{
			group("rbac.authorization.k8s.io", apidiscoveryv2.APIVersionDiscovery{Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{
				{Resource: "roles", ResponseKind: kind("rbac.authorization.k8s.io", "v1", "Role"), Scope: apidiscoveryv2.ScopeNamespace, SingularResource: "role", Verbs: []string{"delete", "get"}},
			}}),
			group("apiregistration.k8s.io", apidiscoveryv2.APIVersionDiscovery{Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{
				{Resource: "apiservices", ResponseKind: kind("apiregistration.k8s.io", "v1", "APIService"), Scope: apidiscoveryv2.ScopeCluster, SingularResource: "apiservice", Verbs: []string{"get"}, Categories: []string{"api-extensions"}},
			}}),
		},
	}
}

var (
	gvGadgets = schema.GroupVersion{Group: "example.com", Version: "v1"}
	gvMetrics = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
)

func localRoutes() []remote.Route {
	return []remote.Route{
		{GroupVersion: schema.GroupVersion{Version: "v1"}, APIService: "v1.", Local: true, Available: true, GroupPriority: 18000, VersionPriority: 1},
		{GroupVersion: schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, APIService: "v1.rbac.authorization.k8s.io", Local: true, Available: true, GroupPriority: 17000, VersionPriority: 15},
		{GroupVersion: schema.GroupVersion{Group: "apiregistration.k8s.io", Version: "v1"}, APIService: "v1.apiregistration.k8s.io", Local: true, Available: true, GroupPriority: 1, VersionPriority: 1},
	}
}

func routeTo(b remote.Backend, gv schema.GroupVersion) remote.Route {
	return remote.Route{
		GroupVersion: gv, APIService: gv.Version + "." + gv.Group, UID: "uid", Revision: "1",
		Backend: b, Available: true, GroupPriority: 100, VersionPriority: 100,
	}
}

func routes(more ...remote.Route) []remote.Route { return append(localRoutes(), more...) }

// aggregated returns a backend with aggregated discovery and an ETag that it honours.
func aggregated(etag string, groups ...apidiscoveryv2.APIGroupDiscovery) http.Handler {
	body, err := json.Marshal(&apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}, Items: groups,
	})
	if err != nil {
		panic(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", etag)
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Content-Type", "application/json;"+aggregatedParams)
		_, _ = w.Write(body)
	})
}

func serves(gv schema.GroupVersion, resources ...apidiscoveryv2.APIResourceDiscovery) apidiscoveryv2.APIGroupDiscovery {
	return apidiscoveryv2.APIGroupDiscovery{
		ObjectMeta: metav1.ObjectMeta{Name: gv.Group},
		Versions:   []apidiscoveryv2.APIVersionDiscovery{{Version: gv.Version, Resources: resources, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}},
	}
}

// legacyList returns a backend's handler for /apis/<group>/<version>.
func legacyList(gv schema.GroupVersion, resources ...metav1.APIResource) http.Handler {
	body, err := json.Marshal(&metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(), APIResources: resources,
	})
	if err != nil {
		panic(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	})
}
