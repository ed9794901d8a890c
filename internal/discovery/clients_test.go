package discovery

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientdiscovery "k8s.io/client-go/discovery"
	memcache "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/discovery/remote/remotetest"
	"portico.dev/internal/respond"
)

// clientEnv is an env with a port, in which one third of the given number of backends is dead and was never known, one third
// hangs and was known, and one third hangs and was known to have nothing that can be deleted. The backends have no sockets:
// sixty TLS handshakes at once on a busy machine would make the live backend miss its deadline.
type clientEnv struct {
	*env
	client   *clientdiscovery.DiscoveryClient
	requests atomic.Int64
	stale    []schema.GroupVersion
	kept     []schema.GroupVersion // dead, and treated like live ones
}

func newClientEnv(t testing.TB, dead int) *clientEnv {
	c := &clientEnv{}
	keep := newMemory()
	var table []remote.Route
	for i := range dead {
		gv := schema.GroupVersion{Group: fmt.Sprintf("dead-%02d.example.com", i), Version: "v1"}
		route := routeTo(remotetest.NewInProcess("ns/"+gv.Group+":443", remotetest.Hangs()), gv)
		switch i % 3 {
		case 0:
			route.Backend, route.Available, route.Reason = nil, false, "ServiceNotFound"
			c.stale = append(c.stale, gv)
		case 1:
			keep.values[route.APIService] = knownAs(gv, `"delete","get","list"`)
			c.stale = append(c.stale, gv)
		case 2:
			keep.values[route.APIService] = knownAs(gv, `"get","list"`)
			c.kept = append(c.kept, gv)
		}
		table = append(table, route)
	}
	alive := remotetest.NewInProcess("ns/gadgets:443", remotetest.Paths{"/apis": aggregated(`"1"`, serves(gvGadgets, gadget))})
	c.env = newEnv(t, keep, routes(append(table, routeTo(alive, gvGadgets))...)...).run(t)
	c.until(t, gvGadgets, "current", current(1))

	server := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(server.Close)
	c.client = clientdiscovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: server.URL, WarningHandler: rest.NoWarnings{}})
	return c
}

var gadget = apidiscoveryv2.APIResourceDiscovery{
	Resource: "gadgets", SingularResource: "gadget", Scope: apidiscoveryv2.ScopeNamespace, Verbs: []string{"delete", "get", "list"},
	ResponseKind: &metav1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"},
}

func knownAs(gv schema.GroupVersion, verbs string) []byte {
	return fmt.Appendf(nil, `{"uid":"uid","revision":"1","resources":[{"resource":"things","singularResource":"thing","scope":"Namespaced",
		"responseKind":{"group":%q,"version":"v1","kind":"Thing"},"verbs":[%s]}]}`, gv.Group, verbs)
}

// serve routes as the router does: /apis/<group>/<version> does not belong to discovery. The backend of the group-version
// serves the request. Without a backend, serve responds with 503 at once.
func (c *clientEnv) serve(w http.ResponseWriter, r *http.Request) {
	c.requests.Add(1)
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	gv := schema.GroupVersion{Version: parts[len(parts)-1]}
	switch {
	case parts[0] == "api" && len(parts) == 2:
	case parts[0] == "apis" && len(parts) == 3:
		gv.Group = parts[1]
	default:
		c.ServeHTTP(w, r)
		return
	}
	g, _ := c.Current().Lookup(gv)
	if g.Reason != "" {
		respond.Error(w, r, apierrors.NewServiceUnavailable(g.APIService+": "+g.Reason))
		return
	}
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, resource := range g.Resources {
		if resource.ResponseKind.Kind != "" {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: resource.Resource, Kind: resource.ResponseKind.Kind, Namespaced: resource.Scope == "Namespaced", Verbs: resource.Verbs,
			})
		}
	}
	respond.Object(w, r, http.StatusOK, list)
}

// names returns the resources of lists as group/version/resource.
func names(lists []*metav1.APIResourceList) []string {
	var all []string
	for _, list := range lists {
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") {
				all = append(all, list.GroupVersion+"/"+r.Name)
			}
		}
	}
	slices.Sort(all)
	return all
}

// With any number of dead backends, client-go finds the same as if only those groups were missing, names them, and sends no
// more requests for sixty than for one, without delay.
func TestClientGoFindsLiveGroupsDespiteDeadBackends(t *testing.T) {
	healthy := newClientEnv(t, 0)
	_, lists, err := healthy.client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	want := names(lists)
	for _, dead := range []int{1, 3, 60} {
		t.Run(fmt.Sprint(dead), func(t *testing.T) {
			c := newClientEnv(t, dead)
			alive := slices.Clone(want)
			for _, gv := range c.kept {
				alive = append(alive, gv.String()+"/things")
			}
			slices.Sort(alive)
			for name, ask := range map[string]func() ([]*metav1.APIResourceList, error){
				"groups and resources": func() ([]*metav1.APIResourceList, error) {
					_, lists, err := c.client.ServerGroupsAndResources()
					return lists, err
				},
				"preferred resources": c.client.ServerPreferredResources,
			} {
				before, began := c.requests.Load(), time.Now()
				lists, err := ask()
				if got := names(lists); !slices.Equal(got, alive) {
					t.Errorf("%s: found %v, want %v", name, got, alive)
				}
				failedAre(t, name, err, c.stale)
				// client-go requests /api and /apis, and repeats both if a group-version is stale.
				if n := c.requests.Load() - before; n != 4 {
					t.Errorf("%s: %d requests, want 4", name, n)
				}
				if took := time.Since(began); took > time.Minute {
					t.Errorf("%s took %s, want at most a minute", name, took)
				}
			}
		})
	}
}

func failedAre(t *testing.T, what string, err error, want []schema.GroupVersion) {
	t.Helper()
	var failed *clientdiscovery.ErrGroupDiscoveryFailed
	if len(want) == 0 && err == nil {
		return
	}
	if !errors.As(err, &failed) {
		t.Fatalf("%s: error = %v, want ErrGroupDiscoveryFailed for %v", what, err, want)
	}
	got := slices.Collect(maps.Keys(failed.Groups))
	slices.SortFunc(got, func(a, b schema.GroupVersion) int { return strings.Compare(a.Group, b.Group) })
	if !slices.Equal(got, want) {
		t.Errorf("%s: failed groups = %v, want %v", what, got, want)
	}
}

func TestRESTMapperWorksDespiteDeadBackends(t *testing.T) {
	c := newClientEnv(t, 60)
	cached := memcache.NewMemCacheClient(c.client)
	deferred := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	mapper := restmapper.NewShortcutExpander(deferred, cached, func(warning string) { t.Errorf("warning = %s, want none", warning) })

	began := time.Now()
	for resource, kind := range map[string]schema.GroupVersionKind{
		"ns":                              {Version: "v1", Kind: "Namespace"},
		"roles":                           {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
		"gadgets":                         {Group: "example.com", Version: "v1", Kind: "Gadget"},
		"things." + c.kept[0].Group:       {Group: c.kept[0].Group, Version: "v1", Kind: "Thing"},
		"things.v1." + c.kept[1].Group:    {Group: c.kept[1].Group, Version: "v1", Kind: "Thing"},
		"roles.rbac.authorization.k8s.io": {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
	} {
		gvr, gr := schema.ParseResourceArg(resource)
		if gvr == nil {
			all := gr.WithVersion("")
			gvr = &all
		}
		got, err := mapper.KindFor(*gvr)
		if err != nil {
			got, err = mapper.KindFor(gr.WithVersion(""))
		}
		if err != nil || got != kind {
			t.Errorf("KindFor(%s) = %v, error %v, want %v", resource, got, err, kind)
		}
	}
	if n := c.requests.Load(); n > 4 { // once to fill the cache; once more because "things.v1.x" can be a resource of group v1.x
		t.Errorf("%d requests, want at most 4", n)
	}
	if _, err := mapper.RESTMapping(schema.GroupKind{Group: c.stale[0].Group, Kind: "Thing"}, "v1"); !meta.IsNoMatchError(err) {
		t.Errorf("RESTMapping of a dead backend's kind: error = %v, want no match", err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the mappings took %s, want at most a minute", took)
	}
	// In this process, kinds of dead backends stay mapped.
	for _, gv := range c.stale {
		if g, _ := c.Current().Lookup(gv); len(g.Resources) == 0 {
			continue
		}
		if _, err := c.Current().RESTMapper().RESTMapping(schema.GroupKind{Group: gv.Group, Kind: "Thing"}, "v1"); err != nil {
			t.Errorf("RESTMapping of Thing in %s failed: %v, want no error", gv, err)
		}
	}
}

// Old clients, and kubectl with legacy discovery, request each group-version separately.
func TestLegacyClientsWorkDespiteDeadBackends(t *testing.T) {
	c := newClientEnv(t, 30)
	legacy := clientdiscovery.NewDiscoveryClient(c.client.RESTClient())
	legacy.UseLegacyDiscovery = true
	began := time.Now()
	_, lists, err := legacy.ServerGroupsAndResources()
	want := []string{"example.com/v1/gadgets", "rbac.authorization.k8s.io/v1/roles", "v1/namespaces"}
	for _, name := range want {
		if !slices.Contains(names(lists), name) {
			t.Errorf("resources = %v, want %s among them", names(lists), name)
		}
	}
	dead := slices.Concat(c.stale, c.kept) // here each dead backend is requested, and fails
	slices.SortFunc(dead, func(a, b schema.GroupVersion) int { return strings.Compare(a.Group, b.Group) })
	failedAre(t, "legacy", err, dead)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("legacy discovery took %s, want at most a minute", took)
	}
}
