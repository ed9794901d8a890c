package apiservice

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"

	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
	"portico.dev/internal/transport"
)

// patience is the time that a test waits for an event that should take milliseconds.
const patience = time.Minute

// eventually waits until condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("condition not met after %v: want %s", patience, what)
		}
	}
}

// env is a controller over fake clientsets, with real backends.
type env struct {
	*Controller
	t         *testing.T
	authority *pki.Authority
	registry  *prometheus.Registry
	api       *aggregatorfake.Clientset
	core      *kubefake.Clientset
	crds      *crdfake.Clientset
}

type option func(h *env, cfg *Config, options *transport.Options)

// newEnv makes a controller that does not run yet.
func newEnv(t *testing.T, objects []runtime.Object, opts ...option) *env {
	t.Helper()
	authority, err := pki.NewAuthority("backends")
	if err != nil {
		t.Fatal(err)
	}
	h := &env{
		t: t, authority: authority, registry: prometheus.NewRegistry(),
		api: aggregatorfake.NewClientset(), core: kubefake.NewClientset(), crds: crdfake.NewClientset(),
	}
	// The tracker behind a fake clientset gives no UIDs; the API server does.
	h.api.PrependReactor("create", "apiservices", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o := a.(clienttesting.CreateAction).GetObject().(*apiregistrationv1.APIService)
		o.UID = types.UID(o.Name + "-" + time.Now().String())
		return false, nil, nil
	})
	// The tracker also lets a write of the status restore an older spec, and overwrite a newer status; the API server does not.
	var mu sync.Mutex
	version := 1
	h.api.PrependReactor("update", "apiservices", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "status" {
			return false, nil, nil
		}
		mu.Lock()
		defer mu.Unlock()
		o := a.(clienttesting.UpdateAction).GetObject().(*apiregistrationv1.APIService)
		kind := apiregistrationv1.SchemeGroupVersion.WithResource("apiservices")
		there, err := h.api.Tracker().Get(kind, "", o.Name)
		if err != nil {
			return true, nil, err
		}
		now := there.(*apiregistrationv1.APIService).DeepCopy()
		if o.ResourceVersion != now.ResourceVersion {
			return true, nil, apierrors.NewConflict(kind.GroupResource(), o.Name, fmt.Errorf("resourceVersion is %s, not %s", now.ResourceVersion, o.ResourceVersion))
		}
		version++
		now.Status, now.ResourceVersion = o.Status, strconv.Itoa(version)
		return true, now, h.api.Tracker().Update(kind, now, "")
	})
	for _, o := range objects {
		h.add(o)
	}
	h.build(opts...)
	return h
}

// another returns a second replica: another controller over the same API.
func (h *env) another(opts ...option) *env {
	h.t.Helper()
	other := *h
	other.registry = prometheus.NewRegistry()
	other.build(opts...)
	return &other
}

// build makes the controller and starts its informers.
func (h *env) build(opts ...option) {
	t := h.t
	t.Helper()
	var wg sync.WaitGroup
	watched(&wg, &h.api.Fake, h.api.Tracker(), "apiservices")
	watched(&wg, &h.core.Fake, h.core.Tracker(), "services")
	watched(&wg, &h.core.Fake, h.core.Tracker(), "endpointslices")
	watched(&wg, &h.core.Fake, h.core.Tracker(), "endpoints")
	watched(&wg, &h.crds.Fake, h.crds.Tracker(), "customresourcedefinitions")

	api := aggregatorinformers.NewSharedInformerFactory(h.api, 0)
	core := kubeinformers.NewSharedInformerFactory(h.core, 0)
	crds := crdinformers.NewSharedInformerFactory(h.crds, 0)
	options := transport.Options{AllowLoopback: true, Engine: enginetest.Backend(t), Logger: zaptest.NewLogger(t)}
	cfg := Config{
		Client:          h.api.ApiregistrationV1().APIServices(),
		APIServices:     api.Apiregistration().V1().APIServices(),
		Services:        core.Core().V1().Services(),
		EndpointSlices:  core.Discovery().V1().EndpointSlices(),
		Endpoints:       core.Core().V1().Endpoints(),
		CRDs:            crds.Apiextensions().V1().CustomResourceDefinitions(),
		Local:           []schema.GroupVersion{{Version: "v1"}, {Group: "apps", Version: "v1"}, ownGroupVersion},
		EndpointRouting: true,
		Metrics:         metrics.NewAvailability(h.registry),
		Logger:          zaptest.NewLogger(t),
	}
	for _, f := range opts {
		f(h, &cfg, &options)
	}
	cfg.Transport = transport.New(options)
	t.Cleanup(cfg.Transport.Close)
	h.Controller = New(cfg)

	stop := make(chan struct{})
	api.Start(stop)
	core.Start(stop)
	crds.Start(stop)
	t.Cleanup(func() {
		close(stop)
		api.Shutdown()
		core.Shutdown()
		crds.Shutdown()
	})
	// A fake clientset loses events between a list and the watch that follows it.
	wg.Wait()
}

// watched makes wg wait for the first watch of a resource.
func watched(wg *sync.WaitGroup, fake *clienttesting.Fake, tracker clienttesting.ObjectTracker, resource string) {
	wg.Add(1)
	var once sync.Once
	fake.PrependWatchReactor(resource, func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := tracker.Watch(a.GetResource(), a.GetNamespace())
		once.Do(wg.Done)
		return true, w, err
	})
}

// open runs the controller until the test ends and waits for Ready.
func open(t *testing.T, objects []runtime.Object, opts ...option) *env {
	t.Helper()
	h := newEnv(t, objects, opts...)
	h.run()
	select {
	case <-h.Ready():
	case <-time.After(patience):
		t.Fatalf("the controller is not ready after %v, want Ready closed", patience)
	}
	return h
}

// run runs the controller until the test ends, or stop is called.
func (h *env) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				h.t.Errorf("Run failed: %v, want no error", err)
			}
		case <-time.After(patience):
			h.t.Errorf("Run did not return within %v after its context was cancelled, want it to return", patience)
		}
	})
	h.t.Cleanup(stop)
	return stop
}

// add creates an object by its client.
func (h *env) add(o runtime.Object) {
	h.t.Helper()
	var err error
	switch o := o.(type) {
	case *apiregistrationv1.APIService:
		_, err = h.api.ApiregistrationV1().APIServices().Create(h.t.Context(), o, metav1.CreateOptions{})
	case *apiextensionsv1.CustomResourceDefinition:
		_, err = h.crds.ApiextensionsV1().CustomResourceDefinitions().Create(h.t.Context(), o, metav1.CreateOptions{})
	case *corev1.Service:
		_, err = h.core.CoreV1().Services(o.Namespace).Create(h.t.Context(), o, metav1.CreateOptions{})
	default:
		err = h.core.Tracker().Add(o)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *env) get(name string) *apiregistrationv1.APIService {
	h.t.Helper()
	o, err := h.api.ApiregistrationV1().APIServices().Get(h.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return o
}

// written returns a condition from the written status.
func (h *env) written(name string, kind apiregistrationv1.APIServiceConditionType) apiregistrationv1.APIServiceCondition {
	h.t.Helper()
	if o := h.get(name); o != nil {
		for _, c := range o.Status.Conditions {
			if c.Type == kind {
				return c
			}
		}
	}
	return apiregistrationv1.APIServiceCondition{}
}

// is waits until the written condition and the route of an APIService have the same status and reason.
func (h *env) is(name string, status apiregistrationv1.ConditionStatus, reason string) {
	h.t.Helper()
	eventually(h.t, name+" is "+string(status)+" because "+reason, func() bool {
		o := h.get(name)
		if o == nil {
			return false // not registered yet
		}
		c := h.written(name, apiregistrationv1.Available)
		r, ok := h.Table().Lookup(groupVersionOf(o))
		return ok && c.Status == status && c.Reason == reason && r.Condition.Status == status && r.Condition.Reason == reason
	})
}

// statusWrites returns the number of writes of status so far.
func (h *env) statusWrites() int {
	n := 0
	for _, a := range h.api.Actions() {
		if a.GetVerb() == "update" && a.GetSubresource() == "status" {
			n++
		}
	}
	return n
}

// backend is a real extension server.
type backend struct {
	t       *testing.T
	address *net.TCPAddr
	tls     *pki.KeyPair
	handler atomic.Pointer[http.HandlerFunc]
	asked   atomic.Int64
	stop    func()
}

// serve starts an extension server with a certificate for <name>.<namespace>.svc.
func (h *env) serve(name string) *backend {
	h.t.Helper()
	certificate, key, err := h.authority.Issue(pki.Leaf{CommonName: name, DNSNames: []string{name + ".test.svc"}, Server: true})
	if err != nil {
		h.t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(certificate, key)
	if err != nil {
		h.t.Fatal(err)
	}
	b := &backend{t: h.t, tls: pair, address: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	b.answer(func(http.ResponseWriter, *http.Request) {})
	b.start()
	h.t.Cleanup(func() { b.stop() })
	return b
}

func (b *backend) answer(f http.HandlerFunc) { b.handler.Store(&f) }

// start listens, on the same port as before if there was one.
func (b *backend) start() {
	b.t.Helper()
	listener, err := net.ListenTCP("tcp", b.address)
	if err != nil {
		b.t.Fatal(err)
	}
	b.address = listener.Addr().(*net.TCPAddr)
	server := &http.Server{
		TLSConfig: pki.ServerConfig(b.tls),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.asked.Add(1)
			(*b.handler.Load())(w, r)
		}),
		ErrorLog: log.New(io.Discard, "", 0),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(listener, "", "")
	}()
	b.stop = sync.OnceFunc(func() {
		_ = server.Close()
		<-done
	})
}

func (b *backend) port() int32 { return int32(b.address.Port) }

// external is a Service of type ExternalName that leads to this machine.
func external(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "127.0.0.1"},
	}
}

// remote is an APIService of group for a backend.
func (h *env) remote(group, version, service string, port int32) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: version + "." + group},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group, Version: version, GroupPriorityMinimum: 1000, VersionPriority: 15,
			Service:  &apiregistrationv1.ServiceReference{Namespace: "test", Name: service, Port: &port},
			CABundle: h.authority.PEM(),
		},
	}
}
