package apiservice

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeinformers "k8s.io/client-go/informers"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/pki"
	"portico.dev/internal/transport"
)

var gvExample = schema.GroupVersion{Group: "example.com", Version: "v1"}

func TestLocalGroupVersionsAreRegisteredRoutedAndAvailable(t *testing.T) {
	h := open(t, nil)
	h.is("v1.", "True", "Local")
	h.is("v1.apps", "True", "Local")
	o := h.get("v1.apps")
	if o.Labels[managedLabel] != "onstart" || o.Spec.GroupPriorityMinimum != 17800 || o.Spec.VersionPriority != 15 || o.Spec.Service != nil {
		t.Errorf("labels and spec of APIService v1.apps = %+v %+v, want label onstart, priorities 17800 and 15, and no Service", o.Labels, o.Spec)
	}
	if h.get("v1.apiregistration.k8s.io") != nil {
		t.Error("APIService v1.apiregistration.k8s.io exists, want none for the group of APIServices")
	}
	table := h.Table()
	if r, ok := table.Lookup(ownGroupVersion); !ok || !r.Local || !r.Available() || table.Routes()[0] != r {
		t.Errorf("route of %v = %+v (found %t), want the first route of the table, local and available", ownGroupVersion, r, ok)
	}
	if !table.Synced() {
		t.Error("Synced() = false after Ready, want true")
	}
}

func TestAPIServiceGroupCannotBeTakenOver(t *testing.T) {
	h := newEnv(t, nil)
	evil := h.serve("evil")
	h.add(external("evil"))
	h.add(h.remote("apiregistration.k8s.io", "v1", "evil", evil.port()))
	h.run()
	<-h.Ready()
	if r, _ := h.Table().Lookup(ownGroupVersion); !r.Local || r.Backend != nil {
		t.Errorf("backend of the route of %v = %v, want a local route without a backend", ownGroupVersion, r.Backend)
	}
}

func TestRemoteAPIServiceBecomesAvailable(t *testing.T) {
	h := open(t, nil)
	b := h.serve("server")
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.is("v1.example.com", "False", "ServiceNotFound")
	want := `
# HELP aggregator_unavailable_apiservice 1 for each APIService that this replica finds unavailable, 0 for the others.
# TYPE aggregator_unavailable_apiservice gauge
aggregator_unavailable_apiservice{name="v1."} 0
aggregator_unavailable_apiservice{name="v1.apps"} 0
aggregator_unavailable_apiservice{name="v1.example.com"} 1
`
	eventually(t, "metrics agree", func() bool {
		return testutil.GatherAndCompare(h.registry, strings.NewReader(want), "aggregator_unavailable_apiservice") == nil
	})
	// The Service arrives later, as with kubectl apply of a directory.
	h.add(external("server"))
	h.is("v1.example.com", "True", "Passed")
	if got := h.written("v1.example.com", apiregistrationv1.Available).Message; got != "all checks passed" {
		t.Errorf("message of condition Available = %q, want %q", got, "all checks passed")
	}
	if got := h.written("v1.example.com", caBundleValid).Status; got != "True" {
		t.Errorf("status of condition CABundleValid = %q, want True", got)
	}
	if b := h.DebugState().Backends[0]; b.Name == "" || b.Limit == 0 || len(b.Endpoints) != 1 || b.Endpoints[0].State != "well" {
		t.Errorf("backend in /debug/aggregation = %+v, want a name, a limit and one endpoint in state well", b.Report)
	}
	if probe := h.DebugState().Backends[0].Probes[0]; !probe.Up || probe.CertificateExpires.Before(time.Now()) {
		t.Errorf("probe in DebugState = %+v, want Up and a certificate that has not expired", probe)
	}
	r, _ := h.Table().Lookup(gvExample)
	request(t, r.Backend)
}

// request makes a request as a client would.
func request(t *testing.T, b *transport.Backend) {
	t.Helper()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://ignored/apis/example.com/v1", nil)
	resp, err := b.RoundTrip(req)
	if err != nil {
		t.Fatalf("RoundTrip of a request through the route failed: %v, want no error", err)
	}
	_ = resp.Body.Close()
}

func TestBackendStopAndReturnAreDetectedAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	h := open(t, nil)
	b := h.serve("server")
	h.add(external("server"))
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.is("v1.example.com", "True", "Passed")
	before := h.written("v1.example.com", apiregistrationv1.Available).LastTransitionTime

	b.stop()
	r, _ := h.Table().Lookup(gvExample)
	h.backendFailed(r.Backend)
	h.is("v1.example.com", "False", "FailedDiscoveryCheck")
	down := h.written("v1.example.com", apiregistrationv1.Available)
	const url = "https://server.test.svc:"
	if !strings.HasPrefix(down.Message, "failing or missing response from "+url) || strings.Contains(down.Message, "127.0.0.1") {
		t.Errorf("message of condition Available = %q, want prefix %q and no 127.0.0.1", down.Message, "failing or missing response from "+url)
	}
	if down.LastTransitionTime.Before(&before) {
		t.Errorf("lastTransitionTime went from %v back to %v, want it not to go back", before, down.LastTransitionTime)
	}

	// The status does not change while the backend stays down, so nothing is written, no matter how often it is probed.
	writes := h.statusWrites()
	probed := func() int { return h.DebugState().Backends[0].Probes[0].Failures }
	eventually(t, "three more failures", func() bool { return probed() >= 4 })
	if n := h.statusWrites() - writes; n != 0 {
		t.Errorf("%d status writes while the backend stayed down, want 0", n)
	}

	b.start()
	h.is("v1.example.com", "True", "Passed")
	state := h.DebugState().APIServices[0]
	var path []string
	for _, tr := range state.Transitions {
		path = append(path, string(tr.To))
	}
	if got := strings.Join(path, " "); !strings.HasSuffix(got, "True False True") {
		t.Errorf("transitions of v1.example.com = %q, want suffix %q", got, "True False True")
	}
}

func TestHungBackendDoesNotDelayOtherBackends(t *testing.T) {
	t.Parallel()
	for try := 1; ; try++ { // on a busy machine a single try can be slow; waiting for the hung backend is slow in each try
		others, ready := besideAHungBackend(t)
		if others <= probeTimeout && ready <= firstProbeTime+probeTimeout {
			return
		}
		if try == 5 {
			t.Fatalf("beside a hung backend another one became available after %v and the controller ready after %v in five tries, want at most %v and %v", others, ready, probeTimeout, firstProbeTime+probeTimeout)
		}
	}
}

// besideAHungBackend returns how long the other APIServices take to become available, and the controller to become ready.
func besideAHungBackend(t *testing.T) (others, ready time.Duration) {
	t.Helper()
	h := newEnv(t, nil)
	hung, quick := h.serve("hung"), h.serve("quick")
	release := make(chan struct{})
	hung.answer(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	for i := range 20 {
		group := string(rune('a'+i)) + ".hung.io"
		h.add(h.remote(group, "v1", "hung", hung.port()))
	}
	h.add(external("hung"))
	h.add(external("quick"))
	h.add(h.remote("quick.io", "v1", "quick", quick.port()))

	start := time.Now()
	defer h.run()()
	h.is("v1.quick.io", "True", "Passed")
	h.is("v1.apps", "True", "Local")
	others = time.Since(start)
	<-h.Ready()
	ready = time.Since(start)
	if r, ok := h.Table().Lookup(schema.GroupVersion{Group: "a.hung.io", Version: "v1"}); !ok || r.Available() {
		t.Errorf("route of the hung backend = %+v (found %t), want a route that is not available", r, ok)
	}
	return others, ready
}

func TestGroupVersionsOfOneBackendShareItsMonitor(t *testing.T) {
	h := open(t, nil)
	b := h.serve("server")
	b.answer(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/v2") {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	h.add(external("server"))
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.add(h.remote("example.com", "v2", "server", b.port()))
	h.is("v1.example.com", "True", "Passed")
	h.is("v2.example.com", "False", "FailedDiscoveryCheck")
	state := h.DebugState()
	if len(state.Backends) != 1 || len(state.Backends[0].Probes) != 2 || len(state.APIServices) != 2 {
		t.Errorf("state = %+v, want 1 backend with 2 probes and 2 APIServices", state)
	}
	if got := h.written("v2.example.com", apiregistrationv1.Available).Message; !strings.Contains(got, "bad status from https://server.test.svc:") || !strings.HasSuffix(got, ": 404") {
		t.Errorf("message of v2.example.com = %q, want a bad status from https://server.test.svc: that ends in 404", got)
	}
}

func TestRouteFollowsEndpointChanges(t *testing.T) {
	t.Parallel()
	h := newEnv(t, nil)
	b := h.serve("server")
	s := service(corev1.ServiceTypeClusterIP, "10.0.0.1", corev1.ServicePort{Name: "https", Port: 443})
	s.Namespace = "test"
	es := slice("server-a", discoveryv1.AddressTypeIPv4, "https", b.port(), endpoint("127.0.0.1", notReady))
	es.Namespace = "test"
	h.add(s)
	h.add(es)
	h.add(h.remote("example.com", "v1", "server", 443))
	h.run()
	<-h.Ready()
	h.is("v1.example.com", "False", "MissingEndpoints")
	if b.asked.Load() != 0 {
		t.Errorf("an endpoint that is not ready received %d requests, want 0", b.asked.Load())
	}

	es = es.DeepCopy()
	es.ResourceVersion = "2"
	es.Endpoints[0].Conditions.Ready = new(true)
	if _, err := h.core.DiscoveryV1().EndpointSlices("test").Update(t.Context(), es, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.is("v1.example.com", "True", "Passed")

	if err := h.core.DiscoveryV1().EndpointSlices("test").Delete(t.Context(), es.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	h.is("v1.example.com", "False", "EndpointsNotFound")
}

func TestForbiddenAddressIsReported(t *testing.T) {
	h := newEnv(t, nil, func(_ *env, _ *Config, o *transport.Options) { o.AllowLoopback = false })
	s := service(corev1.ServiceTypeClusterIP, "10.0.0.1", corev1.ServicePort{Name: "https", Port: 443})
	s.Namespace = "test"
	es := slice("server-a", discoveryv1.AddressTypeIPv4, "https", 443, endpoint("169.254.169.254"))
	es.Namespace = "test"
	h.add(s)
	h.add(es)
	h.add(h.remote("example.com", "v1", "server", 443))
	h.run()
	<-h.Ready()
	h.is("v1.example.com", "False", "ForbiddenAddress")
}

func TestInvalidCABundleIsReportedUntilUpdate(t *testing.T) {
	h := open(t, nil)
	b := h.serve("server")
	h.add(external("server"))
	o := h.remote("example.com", "v1", "server", b.port())
	o.Spec.CABundle = []byte("not a certificate")
	h.add(o)
	h.is("v1.example.com", "False", "InvalidCABundle")
	if got := h.written("v1.example.com", caBundleValid).Status; got != "False" {
		t.Errorf("status of condition CABundleValid = %q, want False", got)
	}

	o = h.get("v1.example.com")
	o.Spec.CABundle = h.authority.PEM()
	if _, err := h.api.ApiregistrationV1().APIServices().Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.is("v1.example.com", "True", "Passed")
	eventually(t, "CABundleValid is True", func() bool { return h.written("v1.example.com", caBundleValid).Status == "True" })
}

func TestCARotationKeepsBackendAvailable(t *testing.T) {
	h := open(t, nil)
	b := h.serve("server")
	h.add(external("server"))
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.is("v1.example.com", "True", "Passed")
	r, _ := h.Table().Lookup(gvExample)

	other, err := pki.NewAuthority("the next one")
	if err != nil {
		t.Fatal(err)
	}
	o := h.get("v1.example.com")
	o.Spec.CABundle = append(h.authority.PEM(), other.PEM()...)
	if _, err := h.api.ApiregistrationV1().APIServices().Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	old := r.Backend
	eventually(t, "requests go by the new bundle", func() bool {
		r, _ = h.Table().Lookup(gvExample)
		if !r.Available() {
			t.Fatalf("v1.example.com became unavailable while its CA bundle changed: %s: %s, want available throughout", r.Condition.Reason, r.Condition.Message)
		}
		return r.Backend != old && len(h.DebugState().Backends) == 1
	})
	h.is("v1.example.com", "True", "Passed")
}

func TestBackendWithUntrustedCertificateIsUnavailable(t *testing.T) {
	h := open(t, nil)
	other := newEnv(t, nil)
	b := other.serve("server")
	h.add(external("server"))
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.is("v1.example.com", "False", "FailedDiscoveryCheck")
	if got := h.written("v1.example.com", apiregistrationv1.Available).Message; !strings.Contains(got, "x509: certificate signed by unknown authority") {
		t.Errorf("message of condition Available = %q, want it to contain %q", got, "x509: certificate signed by unknown authority")
	}
}

func TestDeletedAPIServiceIsRemovedCompletely(t *testing.T) {
	h := open(t, nil)
	b := h.serve("server")
	h.add(external("server"))
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.is("v1.example.com", "True", "Passed")
	changed := h.Changed()
	if err := h.api.ApiregistrationV1().APIServices().Delete(t.Context(), "v1.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-time.After(patience):
		t.Fatal("Changed() did not fire within a minute after v1.example.com was deleted, want one change")
	}
	eventually(t, "no route and no backend", func() bool {
		_, routed := h.Table().Lookup(gvExample)
		return !routed && len(h.DebugState().Backends) == 0
	})
	if n, err := testutil.GatherAndCount(h.registry, "aggregator_unavailable_apiservice_total"); err != nil || n != 0 {
		t.Errorf("series of aggregator_unavailable_apiservice_total after the deletion = %d, error %v, want 0 and no error", n, err)
	}
	families, err := h.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.Contains(f.String(), "example.com") {
			t.Errorf("metric after the deletion of v1.example.com = %s, want none for example.com", f)
		}
	}
}

func TestDeletedBuiltInAPIServiceIsRecreated(t *testing.T) {
	h := open(t, nil)
	h.is("v1.apps", "True", "Local")
	if err := h.api.ApiregistrationV1().APIServices().Delete(t.Context(), "v1.apps", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "v1.apps is back", func() bool { return h.get("v1.apps") != nil })
	h.is("v1.apps", "True", "Local")
}

func TestUserAPIServiceForLocalGroupVersionIsKept(t *testing.T) {
	h := newEnv(t, nil)
	b := h.serve("server")
	h.add(external("server"))
	h.add(h.remote("apps", "v1", "server", b.port()))
	h.run()
	<-h.Ready()
	h.is("v1.apps", "True", "Passed")
	if o := h.get("v1.apps"); o.Spec.Service == nil || o.Labels[managedLabel] != "" {
		t.Errorf("labels and spec of the user's v1.apps = %+v %+v, want its Service and no label of ours", o.Labels, o.Spec)
	}
	if r, _ := h.Table().Lookup(schema.GroupVersion{Group: "apps", Version: "v1"}); r.Local {
		t.Error("route of apps/v1 is local, want the user's backend")
	}
	eventually(t, "the status says what it hides", func() bool {
		return slices.ContainsFunc(h.get("v1.apps").Status.Conditions, func(c apiregistrationv1.APIServiceCondition) bool {
			return c.Type == hidesLocal && c.Status == apiregistrationv1.ConditionTrue
		})
	})
}

// After a backend had taken a local group-version over, the original registration is restored at once, in every way of giving
// the group-version back. Another front door that starts afterwards restores it too.
func TestLocalGroupVersionIsRestoredAfterTakeover(t *testing.T) {
	t.Parallel()
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v1", Served: true},
		}},
	}
	for name, gv := range map[string]schema.GroupVersion{"v1.apps": {Group: "apps", Version: "v1"}, "v1.example.com": gvExample} {
		replace := map[string]func(h *env, port int32){
			"created instead": func(h *env, port int32) {
				if err := h.api.ApiregistrationV1().APIServices().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				theirs := h.remote(gv.Group, gv.Version, "server", port)
				eventually(t, "it is theirs", func() bool {
					if _, err := h.api.ApiregistrationV1().APIServices().Create(t.Context(), theirs, metav1.CreateOptions{}); err == nil {
						return true
					}
					_ = h.api.ApiregistrationV1().APIServices().Delete(t.Context(), name, metav1.DeleteOptions{})
					return false
				})
			},
			"changed without its label": func(h *env, port int32) {
				o := h.get(name)
				o.Labels, o.Spec = map[string]string{"their": "own"}, h.remote(gv.Group, gv.Version, "server", port).Spec
				h.change(o)
			},
		}
		if gv != gvExample { // the labelled APIService of a definition is repaired at once after any change
			replace["changed with its label"] = func(h *env, port int32) {
				o := h.get(name)
				o.Spec = h.remote(gv.Group, gv.Version, "server", port).Spec
				h.change(o)
			}
		}
		for how, take := range replace {
			for back, give := range map[string]func(h *env){
				"deleted": func(h *env) {
					if err := h.api.ApiregistrationV1().APIServices().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
						t.Fatal(err)
					}
				},
				"changed back": func(h *env) {
					o := h.get(name)
					o.Spec.Service, o.Spec.CABundle, o.Spec.VersionPriority = nil, nil, 1
					h.change(o)
				},
			} {
				t.Run(name+" "+how+", "+back, func(t *testing.T) {
					h := open(t, []runtime.Object{crd.DeepCopy()})
					h.is(name, "True", "Local")
					want := h.get(name)
					b := h.serve("server")
					h.add(external("server"))
					take(h, b.port())
					h.is(name, "True", "Passed")
					if h.written(name, hidesLocal).Status != apiregistrationv1.ConditionTrue {
						t.Errorf("condition HidesLocalResources of %s is not True, want True", name)
					}
					give(h)
					h.is(name, "True", "Local")
					restored := func(h *env) func() bool {
						return func() bool {
							now := h.get(name)
							r, ok := h.Table().Lookup(gv)
							return now != nil && now.Labels[managedLabel] == want.Labels[managedLabel] && equality.Semantic.DeepEqual(now.Spec, want.Spec) &&
								h.written(name, hidesLocal).Status == "" && ok && r.Local && r.VersionPriority == want.Spec.VersionPriority
						}
					}
					eventually(t, "the registration is as it was", restored(h))
					other := h.another()
					other.run()
					<-other.Ready()
					eventually(t, "and is so at another", restored(other))
				})
			}
		}
	}
}

// change updates an APIService as a user does.
func (h *env) change(o *apiregistrationv1.APIService) {
	h.t.Helper()
	if _, err := h.api.ApiregistrationV1().APIServices().Update(h.t.Context(), o, metav1.UpdateOptions{}); err != nil {
		h.t.Fatal(err)
	}
}

func TestDefinitionsAreRegisteredAndUnregistered(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v1", Served: true}, {Name: "v1alpha1", Served: false},
		}},
	}
	stale := localAPIService(schema.GroupVersion{Group: "gone.io", Version: "v1"}, customPriority, managedAlways)
	h := open(t, []runtime.Object{crd, stale})
	h.is("v1.example.com", "True", "Local")
	if o := h.get("v1.example.com"); o.Labels[managedLabel] != "true" || o.Spec.GroupPriorityMinimum != 1000 || o.Spec.VersionPriority != 100 {
		t.Errorf("labels and spec of v1.example.com = %+v %+v, want label true and priorities 1000 and 100", o.Labels, o.Spec)
	}
	eventually(t, "the APIService of a CRD that is gone is deleted", func() bool { return h.get("v1.gone.io") == nil })
	if h.get("v1alpha1.example.com") != nil {
		t.Error("v1alpha1.example.com is registered, want no APIService for a version that is not served")
	}
	if err := h.crds.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), crd.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "object and route are gone", func() bool {
		_, routed := h.Table().Lookup(gvExample)
		return !routed && h.get("v1.example.com") == nil
	})
}

func TestConflictIsRetried(t *testing.T) {
	h := newEnv(t, nil)
	conflicts := make(chan struct{}, 3)
	h.api.PrependReactor("update", "apiservices", func(a clienttesting.Action) (bool, runtime.Object, error) {
		select {
		case conflicts <- struct{}{}:
			return true, nil, errors.NewConflict(schema.GroupResource{Resource: "apiservices"}, "x", nil)
		default:
			return false, nil, nil
		}
	})
	h.run()
	<-h.Ready()
	h.is("v1.apps", "True", "Local")
	h.is("v1.", "True", "Local")
}

func TestForeignStatusIsReverted(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b := h.serve("server")
	h.add(external("server"))
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.is("v1.example.com", "True", "Passed")
	o := h.get("v1.example.com")
	o.Status.Conditions = append(slices.Clone(o.Status.Conditions), apiregistrationv1.APIServiceCondition{Type: "TheirOwn", Status: "True"})
	for i := range o.Status.Conditions {
		if o.Status.Conditions[i].Type == apiregistrationv1.Available {
			o.Status.Conditions[i].Status, o.Status.Conditions[i].Reason = "False", "BecauseISaySo"
		}
	}
	if _, err := h.api.ApiregistrationV1().APIServices().UpdateStatus(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.is("v1.example.com", "True", "Passed")
	if h.written("v1.example.com", "TheirOwn").Status != "True" {
		t.Error("condition TheirOwn was lost from the status of v1.example.com, want it kept with status True")
	}
	if r, _ := h.Table().Lookup(gvExample); !r.Available() {
		t.Errorf("v1.example.com is not available after a foreign status write, want routing by the probes only: %+v", r.Condition)
	}
}

func TestNothingIsRoutedBeforeCachesSync(t *testing.T) {
	h := newEnv(t, nil, func(h *env, cfg *Config, _ *transport.Options) {
		cfg.Services.Informer()
		cfg.Services = kubeinformers.NewSharedInformerFactory(h.core, 0).Core().V1().Services() // never started
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- h.Run(ctx) }()
	eventually(t, "the other caches are full", func() bool { return h.cfg.APIServices.Informer().HasSynced() })
	if h.Table().Synced() {
		t.Error("Synced() = true while the cache of Services is empty, want false: unknown group-versions would be 404")
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	select {
	case <-h.Ready():
		t.Error("Ready is closed while the cache of Services is empty, want not ready")
	default:
	}
}
