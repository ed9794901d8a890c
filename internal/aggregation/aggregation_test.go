package aggregation

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"
	"k8s.io/utils/ptr"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/discovery"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/openapi"
	"portico.dev/internal/pki"
	"portico.dev/internal/run"
	"portico.dev/internal/server"
	"portico.dev/internal/transport"
)

// patience bounds waits that take milliseconds on an idle machine.
const patience = time.Minute

// start runs an Aggregation for the APIService v1.example.com, which is served by handler, until the test ends. It returns the chain.
func start(t *testing.T, handler http.HandlerFunc) http.Handler {
	t.Helper()
	authority, err := pki.NewAuthority("backends")
	if err != nil {
		t.Fatal(err)
	}
	port := listen(t, authority, handler)
	registered := aggregatorfake.NewClientset(&apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com", UID: "u"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "example.com", Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 10, CABundle: authority.PEM(),
			Service: &apiregistrationv1.ServiceReference{Namespace: "test", Name: "backend", Port: ptr.To[int32](443)},
		},
	})
	core := kubefake.NewClientset(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: "backend"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "test", Name: "backend", Labels: map[string]string{discoveryv1.LabelServiceName: "backend"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"127.0.0.1"}}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(port)}},
	})
	apiServices, kinds := aggregatorinformers.NewSharedInformerFactory(registered, 0), kubeinformers.NewSharedInformerFactory(core, 0)
	serving := DefaultServing()
	serving.BackendEngine = enginetest.Backend(t)
	base, err := NewBase(serving, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(Config{
		Base:      base,
		Transport: transport.Options{AllowLoopback: true},
		APIServices: apiservice.Config{
			Client: registered.ApiregistrationV1().APIServices(), APIServices: apiServices.Apiregistration().V1().APIServices(),
			Services: kinds.Core().V1().Services(), EndpointSlices: kinds.Discovery().V1().EndpointSlices(),
		},
		Discovery: discovery.Config{Local: func() discovery.Local { return discovery.Local{} }, LocalChanged: never, Storage: nothingKnown{}},
		OpenAPI:   openapi.Config{Local: func() []openapi.Document { return nil }, LocalChanged: never, Storage: nothingKnown{}},
		Resources: func(*discovery.Snapshot, schema.GroupVersion) []apidiscoveryv2.APIResourceDiscovery { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	chain, err := server.NewChain(base.Chain(server.ChainConfig{
		Authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "alice"}}, true, nil
		}),
		Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		}),
		Ready: func() error { return nil },
	}), a.Router(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("static")) })))
	if err != nil {
		t.Fatal(err)
	}
	group := &run.Group{}
	group.Add(run.Member{Name: "transport", Run: a.CloseTransport})
	for _, m := range a.Members() {
		group.Add(m)
	}
	ctx, cancel := context.WithCancel(context.Background())
	apiServices.Start(ctx.Done())
	kinds.Start(ctx.Done())
	done := make(chan error, 1)
	go func() { done <- group.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("group.Run() = %v, want no error", err)
		}
		apiServices.Shutdown()
		kinds.Shutdown()
	})
	select {
	case <-a.OpenAPI.Ready():
	case err := <-done:
		done <- err
		t.Fatalf("group.Run() ended with %v, want it to run until the test ends", err)
	case <-time.After(patience):
		t.Fatal("the last member was not ready within a minute, want it ready")
	}
	return chain
}

// listen serves handler by TLS on a port of 127.0.0.1 until the test ends.
func listen(t *testing.T, authority *pki.Authority, handler http.HandlerFunc) int32 {
	t.Helper()
	certificate, key, err := authority.Issue(pki.Leaf{CommonName: "backend", DNSNames: []string{"backend.test.svc"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.TLS = pki.ServerConfig(pair)
	s.StartTLS()
	t.Cleanup(s.Close)
	return int32(s.Listener.Addr().(*net.TCPAddr).Port)
}

func never() <-chan struct{} { return nil }

// nothingKnown is the empty storage of a first start.
type nothingKnown struct{}

func (nothingKnown) Load(context.Context) (map[string][]byte, error) { return nil, nil }
func (nothingKnown) Save(context.Context, string, []byte) error      { return nil }
func (nothingKnown) Delete(context.Context, string) error            { return nil }

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// eventually gets path until its response contains text.
func eventually(t *testing.T, h http.Handler, path, text string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); ; {
		w := get(h, path)
		if w.Code == http.StatusOK && strings.Contains(w.Body.String(), text) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("GET %s = %d %s after a minute, want 200 with %q", path, w.Code, w.Body, text)
		}
	}
}

func TestAPIServiceIsServedAndDocumented(t *testing.T) {
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis/example.com/v1":
			_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[{"name":"things","kind":"Thing","namespaced":true,"verbs":["list"]}]}`))
		case "/openapi/v3":
			_, _ = w.Write([]byte(`{"paths":{"apis/example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/example.com/v1?hash=1"}}}`))
		case "/openapi/v3/apis/example.com/v1":
			_, _ = w.Write([]byte(`{"openapi":"3.0.0","info":{"title":"t","version":"1"},"paths":{"/apis/example.com/v1/things":{}}}`))
		case "/apis/example.com/v1/things":
			_, _ = w.Write([]byte(`{"user":"` + r.Header.Get("X-Remote-User") + `"}`))
		default:
			http.NotFound(w, r)
		}
	})
	eventually(t, h, "/apis/example.com/v1/things", `{"user":"alice"}`)
	eventually(t, h, "/apis", `"example.com/v1"`)
	eventually(t, h, "/openapi/v3", `"apis/example.com/v1"`)
	eventually(t, h, "/elsewhere", "static")
	if w := get(h, "/apis/other.example.com/v1/things"); w.Code != http.StatusNotFound {
		t.Errorf("GET of a group without an APIService = %d, want 404", w.Code)
	}
}

func TestUnavailableBackendIsNamedInError(t *testing.T) {
	h := start(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	w := get(h, "/apis/example.com/v1/things")
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "v1.example.com") {
		t.Errorf("GET from a dead backend = %d %s, want 503 with the name of the APIService", w.Code, w.Body)
	}
}

// The routing table exists before its readers start, and they stop before it does.
func TestMembersStartAfterDependencies(t *testing.T) {
	a := &Aggregation{
		APIServices: &apiservice.Controller{}, Discovery: &discovery.Merger{}, OpenAPI: &openapi.Publisher{},
	}
	var names []string
	for _, m := range a.Members(run.Member{Name: "further"}) {
		names = append(names, m.Name)
	}
	want := []string{"apiservices", "further", "mirror", "shared watches", "moved watches", "discovery", "watch list probes", "openapi"}
	if !slices.Equal(names, want) {
		t.Errorf("members = %v, want %v", names, want)
	}
}

func TestTransportClosesWhenContextEnds(t *testing.T) {
	a := &Aggregation{Transport: transport.New(transport.Options{Engine: enginetest.Backend(t)})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.CloseTransport(ctx) }()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("CloseTransport after the cancellation = %v, want no error", err)
	}
}
