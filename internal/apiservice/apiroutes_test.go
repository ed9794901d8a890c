package apiservice

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"sigs.k8s.io/yaml"

	routingclient "portico.dev/internal/routes/client"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/transport"
)

// apiRoutes stores APIRoutes, and their status as the controller writes it.
type apiRoutes struct {
	t        *testing.T
	source   *cachetesting.FakeControllerSource
	informer cache.SharedIndexInformer
	ids      int

	mu        sync.Mutex
	stored    map[string]string // resource versions: a status does not restore a deleted object, nor an older one
	writes    int               // of the status
	conflicts int               // number of writes to refuse with a conflict
}

func withAPIRoutes(t *testing.T, into **apiRoutes) option {
	return func(h *env, cfg *Config, _ *transport.Options) {
		r := &apiRoutes{t: t, source: cachetesting.NewFakeControllerSource(), stored: map[string]string{}}
		r.informer = cache.NewSharedIndexInformer(r.source, &v1alpha1.APIRoute{}, 0, cache.Indexers{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			o := &v1alpha1.APIRoute{}
			if q.Method != http.MethodPut || !strings.HasSuffix(q.URL.Path, "/status") || json.NewDecoder(q.Body).Decode(o) != nil {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			o.APIVersion, o.Kind = v1alpha1.GroupVersion.String(), "APIRoute"
			r.mu.Lock()
			defer r.mu.Unlock()
			version, there := r.stored[o.Name]
			if !there {
				http.NotFound(w, q)
				return
			}
			if r.conflicts > 0 || version != o.ResourceVersion {
				r.conflicts = max(0, r.conflicts-1)
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusConflict)
				_ = json.NewEncoder(w).Encode(apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("apiroutes").GroupResource(), o.Name, errors.New("changed")).ErrStatus)
				return
			}
			r.writes++
			r.store(o, r.source.Modify) // readers see it from now on
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(o)
		}))
		client, err := routingclient.New(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		core := informers.NewSharedInformerFactory(h.core, 0)
		cfg.APIRoutes = &APIRoutes{Client: client, Informer: r.informer, Namespaces: core.Core().V1().Namespaces().Lister()}
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.informer.Run(stop)
		}()
		core.Start(stop)
		t.Cleanup(func() {
			close(stop)
			<-done
			core.Shutdown()
			r.source.Shutdown()
		})
		t.Cleanup(server.Close) // before the source is shut down, which must not be used afterwards
		*into = r
	}
}

func (r *apiRoutes) add(text string) {
	r.t.Helper()
	o := &v1alpha1.APIRoute{}
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		r.t.Fatal(err)
	}
	r.ids++
	o.UID, o.Generation = types.UID(rune('a'+r.ids)), 1
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store(o, r.source.Add)
}

// store is called with mu held. The source sets the resource version.
func (r *apiRoutes) store(o *v1alpha1.APIRoute, in func(runtime.Object)) {
	in(o)
	r.stored[o.Name] = o.ResourceVersion
}

// change stores another spec.
func (r *apiRoutes) change(name string, change func(*v1alpha1.APIRoute)) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var o *v1alpha1.APIRoute
	eventually(r.t, name+" is read as it is stored", func() bool {
		o = r.get(name).DeepCopy()
		return o.ResourceVersion == r.stored[name]
	})
	change(o)
	o.Generation++
	r.store(o, r.source.Modify)
}

func (r *apiRoutes) get(name string) *v1alpha1.APIRoute {
	o, there, err := r.informer.GetStore().GetByKey(name)
	if err != nil || !there {
		return &v1alpha1.APIRoute{}
	}
	return o.(*v1alpha1.APIRoute)
}

// remove deletes a copy, because the source sets the resource version, and the object is in the cache.
func (r *apiRoutes) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.stored, name)
	r.source.Delete(r.get(name).DeepCopy())
}

// status is "Type=Status(Reason) ..." of the APIRoute, its backends and its rules.
func (r *apiRoutes) status(name string) string {
	var parts []string
	s := r.get(name).Status
	for _, c := range s.Conditions {
		parts = append(parts, c.Type+"="+string(c.Status)+"("+c.Reason+")")
	}
	for prefix, list := range map[string][]v1alpha1.NamedConditions{"backend ": s.Backends} {
		for _, n := range list {
			if c := meta.FindStatusCondition(n.Conditions, v1alpha1.ConditionAvailable); c != nil {
				parts = append(parts, prefix+n.Name+"="+string(c.Status)+"("+c.Reason+")")
			}
		}
	}
	for _, n := range s.Rules {
		for _, c := range n.Conditions {
			parts = append(parts, "rule "+n.Name+" "+c.Type+"="+string(c.Status)+"("+c.Reason+")")
		}
	}
	return strings.Join(parts, " ")
}

func (r *apiRoutes) is(name, want string) {
	r.t.Helper()
	last := ""
	defer func() {
		if r.t.Failed() {
			r.t.Logf("the status is %s", last)
		}
	}()
	eventually(r.t, name+" has the status "+want, func() bool {
		last = r.status(name)
		return last == want
	})
}

const twoBackends = `
metadata: {name: v1.example.com}
spec:
  backends: [{name: own}, {name: other, service: {namespace: test, name: other, port: PORT}, insecureSkipTLSVerify: true}]
  rules:
  - {name: others, matches: [{resources: [others]}], backendRefs: [{name: other}]}
`

func TestBackendsOfAPIRouteHaveSeparateVerdicts(t *testing.T) {
	t.Parallel()
	var routes *apiRoutes
	h := open(t, nil, withAPIRoutes(t, &routes))
	own, other := h.serve("own"), h.serve("other")
	h.add(external("own"))
	h.add(external("other"))
	h.add(h.remote("example.com", "v1", "own", own.port()))
	h.is("v1.example.com", "True", "Passed")

	routes.add(strings.Replace(twoBackends, "PORT", itoa(other.port()), 1))
	routes.is("v1.example.com", "Accepted=True(Accepted) Available=True(BackendsAvailable) backend own=True(Passed) backend other=True(Passed) "+
		"rule others Accepted=True(Accepted) rule others Available=True(BackendsAvailable)")
	r, _ := h.Table().Lookup(gvExample)
	if r.Routing == nil || len(r.Parts) != 2 || !r.Parts[0].Available() || r.Parts[1].Backend == nil || r.Parts[0].Backend == r.Parts[1].Backend {
		t.Fatalf("route = %+v, want routing with an available first backend and a different second one", r)
	}
	for _, part := range r.Parts {
		request(t, part.Backend)
	}

	// One backend is down: the APIService is available, and its condition names the missing backend.
	other.stop()
	h.backendFailed(r.Parts[1].Backend)
	h.is("v1.example.com", "True", "SomeBackendsAvailable")
	routes.is("v1.example.com", "Accepted=True(Accepted) Available=False(BackendsUnavailable) backend own=True(Passed) backend other=False(FailedDiscoveryCheck) "+
		"rule others Accepted=True(Accepted) rule others Available=False(BackendsUnavailable)")
	own.stop()
	h.backendFailed(r.Parts[0].Backend)
	h.is("v1.example.com", "False", "FailedDiscoveryCheck")
	own.start()
	other.start()
	h.is("v1.example.com", "True", "Passed")

	// Without the APIRoute the APIService returns to its former state.
	routes.remove("v1.example.com")
	eventually(t, "the plain APIService is back", func() bool {
		r, _ := h.Table().Lookup(gvExample)
		return r != nil && r.Routing == nil && r.Parts == nil && r.Available() && r.Backend != nil
	})
	eventually(t, "the other backend is forgotten", func() bool { return len(h.DebugState().Backends) == 1 })
}

func TestNewAPIRouteKeepsAPIServiceAvailable(t *testing.T) {
	t.Parallel()
	var routes *apiRoutes
	h := open(t, nil, withAPIRoutes(t, &routes))
	own := h.serve("own")
	h.add(external("own"))
	h.add(h.remote("example.com", "v1", "own", own.port()))
	h.is("v1.example.com", "True", "Passed")
	changed := h.Changed()
	routes.add("metadata: {name: v1.example.com}\nspec: {backends: [{name: own, version: v1beta1}]}")
	for {
		<-changed
		changed = h.Changed()
		r, _ := h.Table().Lookup(gvExample)
		if !r.Available() {
			t.Fatalf("condition while the APIRoute was added = %+v, want available throughout", r.Condition)
		}
		if r.Routing != nil && r.Parts[0].Available() {
			break
		}
	}
	if r, _ := h.Table().Lookup(gvExample); r.Parts[0].GroupVersion != (schema.GroupVersion{Group: "example.com", Version: "v1beta1"}) {
		t.Errorf("group-version of the backend = %s, want example.com/v1beta1", r.Parts[0].GroupVersion)
	}
}

func TestIneffectiveAPIRouteReportsReason(t *testing.T) {
	var routes *apiRoutes
	h := open(t, nil, withAPIRoutes(t, &routes))
	own := h.serve("own")
	h.add(external("own"))
	h.add(h.remote("example.com", "v1", "own", own.port()))
	h.is("v1.example.com", "True", "Passed")
	routes.add("metadata: {name: v1.nobody.example.com}\nspec: {backends: [{name: a}]}")
	routes.add("metadata: {name: v1.apps}\nspec: {backends: [{name: a}]}")
	routes.add("metadata: {name: v1.example.com}\nspec: {backends: []}")
	routes.is("v1.nobody.example.com", "Accepted=False(NoAPIService)")
	routes.is("v1.apps", "Accepted=False(LocalAPIService)")
	routes.is("v1.example.com", "Accepted=False(Invalid)")
	if r, _ := h.Table().Lookup(gvExample); r.Routing != nil || !r.Available() {
		t.Errorf("route with an invalid APIRoute = %+v, want it unchanged and available", r)
	}
}

func itoa(n int32) string {
	text, _ := json.Marshal(n)
	return string(text)
}

const customBackend = `
metadata: {name: v1.example.com}
spec:
  backends: [{name: own}, {name: custom, customResources: {}}]
  rules:
  - {name: ponds, matches: [{resources: [ponds]}], backendRefs: [{name: custom}]}
`

func TestCustomResourceBackendIsAvailableOnceDefined(t *testing.T) {
	var routes *apiRoutes
	h := open(t, nil, withAPIRoutes(t, &routes))
	own := h.serve("own")
	h.add(external("own"))
	h.add(h.remote("example.com", "v1", "own", own.port()))
	h.is("v1.example.com", "True", "Passed")
	routes.add(customBackend)
	const head = "Accepted=True(Accepted) "
	routes.is("v1.example.com", head+"Available=False(BackendsUnavailable) backend own=True(Passed) backend custom=False(NoCustomResources) "+
		"rule ponds Accepted=True(Accepted) rule ponds Available=False(BackendsUnavailable)")
	h.is("v1.example.com", "True", "SomeBackendsAvailable")

	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "ponds.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true}},
		},
	}
	h.add(crd)
	eventually(t, "it is not established", func() bool {
		r, _ := h.Table().Lookup(gvExample)
		return len(r.Parts) == 2 && strings.Contains(r.Parts[1].Condition.Message, "ponds.example.com is not established yet")
	})
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	if _, err := h.crds.ApiextensionsV1().CustomResourceDefinitions().UpdateStatus(t.Context(), crd, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	routes.is("v1.example.com", head+"Available=True(BackendsAvailable) backend own=True(Passed) backend custom=True(CustomResources) "+
		"rule ponds Accepted=True(Accepted) rule ponds Available=True(BackendsAvailable)")
	r, _ := h.Table().Lookup(gvExample)
	if part := r.Parts[1]; !part.Local || part.Backend != nil || part.Service != nil || r.Backend != r.Parts[0].Backend {
		t.Errorf("part of custom resources = %+v, want a local one without backend and Service", part)
	}
	for _, c := range r.Extra {
		if c.Type == hidesLocal {
			t.Errorf("condition %s: %s, want none because the APIRoute serves the custom resources", c.Type, c.Message)
		}
	}
	if err := h.crds.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), crd.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	h.is("v1.example.com", "True", "SomeBackendsAvailable")
	routes.remove("v1.example.com")
	h.is("v1.example.com", "True", "Passed")
}
