package simulation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/pki"
	"portico.dev/internal/simulation/network"
)

// admin is the user that prepares a world. Limits do not apply to it.
const admin = "admin"

// shape describes the parts of a world.
type shape struct {
	fronts int
	// gateways is the number of gateways. With gateways, the only front door is the API server of their cluster, and every APIService
	// is adopted.
	gateways int
	// stores has an entry for each backend: whether it stores objects.
	stores []bool
}

// latency is the normal latency between two hosts.
const latency = 200 * time.Microsecond

// world is a network with etcd, front doors, backends and clients. It is used in one bubble.
type world struct {
	t     testing.TB
	name  string
	shape shape
	log   *timeline
	// coverage may belong to several worlds.
	coverage *coverage

	net        *network.Network
	keys       *pki.Directory
	etcd       *etcd
	fronts     []*front
	gateways   []*gatewayReplica
	adopted    bool      // the gateways have adopted every APIService
	unsteady   time.Time // last change of a fault of a front door, a gateway or etcd
	backends   []*backend
	clientHost *network.Host
	// collections are written and watched.
	collections []*watchedCollection
	ledger      *ledger
	ctx         context.Context
	cancel      context.CancelFunc
	samples     []sample // one for each history so far

	mu      sync.Mutex // guards clients
	clients map[string]*client
}

// newWorld starts a world and returns when every APIService is available at every front door. Logs of the front doors go to logger.
func newWorld(t testing.TB, dir string, s shape, seed uint64, log *timeline, covered *coverage, logger *zap.Logger) (w *world, err error) {
	w = &world{
		t: t, name: t.Name(), shape: s, log: log, coverage: covered, net: network.New(seed, network.Link{Latency: latency}), ledger: newLedger(),
		clients: make(map[string]*client),
	}
	labelGoroutines(w.name)
	w.log.start()
	w.ctx, w.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
		}
	}()
	if w.keys, err = pki.OpenDirectory(filepath.Join(dir, "pki"), pki.Leaf{CommonName: "portico", DNSNames: []string{"portico"}, Server: true}); err != nil {
		return w, err
	}
	w.etcd = &etcd{host: w.net.Host("10.0.0.1"), dir: filepath.Join(dir, "etcd"), keys: w.keys}
	if err := w.keys.EnsureEtcd("etcd", []net.IP{w.etcd.host.Address().AsSlice()}); err != nil {
		return w, err
	}
	if err := w.etcd.start(w.ctx); err != nil {
		return w, err
	}
	w.clientHost = w.net.Host("10.0.3.1")
	for i := range s.fronts {
		name := fmt.Sprintf("front%d", i)
		f := &front{name: name, host: w.net.Host(fmt.Sprintf("10.0.1.%d", i+1)), dir: filepath.Join(dir, name), etcd: w.etcd, log: logger.Named(name)}
		if err := pki.CopyShared(f.keys(), filepath.Join(dir, "pki")); err != nil {
			return w, err
		}
		w.fronts = append(w.fronts, f)
		if err := f.start(w.ctx); err != nil {
			return w, err
		}
	}
	for i, stores := range s.stores {
		b, err := newBackend(fmt.Sprintf("backend%d", i), stores, w.net.Host(fmt.Sprintf("10.0.2.%d", i+1)), func(_ *backend, r *http.Request) { w.ledger.arrived(r) })
		if err != nil {
			return w, err
		}
		w.backends = append(w.backends, b)
		if err := b.start(w.ctx); err != nil {
			return w, err
		}
	}
	w.collections = w.newCollections()
	if err := w.register(); err != nil || s.gateways == 0 {
		return w, err
	}
	if err := w.deployGateways(w.client(admin, w.fronts[0]), dir, logger); err != nil {
		return w, err
	}
	return w, w.await(time.Minute, func() error { return w.checkAvailable(w.ctx) })
}

// stop stops everything in reverse order.
func (w *world) stop() error {
	var errs []error
	for _, c := range w.clients {
		c.http.CloseIdleConnections()
	}
	for _, g := range w.gateways {
		if err := g.stop(); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", g.name, err))
		}
	}
	for _, f := range w.fronts {
		if err := f.stop(); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", f.name, err))
		}
	}
	for _, b := range w.backends {
		errs = append(errs, b.stop())
	}
	w.cancel()
	if w.etcd != nil {
		w.etcd.stop()
	}
	return errors.Join(errs...)
}

// register creates the objects that make the backends available, and the permissions of users.
func (w *world) register() error {
	c := w.client(admin, w.fronts[0])
	objects := []struct {
		path   string
		object any
	}{
		{"/api/v1/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: backendNamespace}}},
		{"/api/v1/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: watchedNamespace}}},
		{"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "simulation"}, Subjects: []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "simulation"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		}},
	}
	for _, o := range objects {
		if err := c.do(w.ctx, http.MethodPost, o.path, o.object).failure(); err != nil {
			return err
		}
	}
	for _, b := range w.backends {
		if err := w.registerBackend(c, b); err != nil {
			return err
		}
	}
	// Gateways implement the APIRoutes of adopted APIServices, whose backends are Services of other namespaces for the front door. It
	// would refuse the APIRoute before the adoption, and after it each gateway shares watches on its own.
	if last := w.backends[len(w.backends)-1]; last.stores && w.shape.gateways == 0 {
		if err := w.shareWatches(c, last); err != nil {
			return err
		}
	}
	if err := w.await(time.Minute, func() error { return w.checkAvailable(w.ctx) }); err != nil {
		return err
	}
	if err := w.connectUsers(); err != nil {
		return err
	}
	return w.await(time.Minute, func() error { return w.checkDocuments(w.ctx) })
}

// connectUsers connects each user to each front door, so that later histories do not have more connections than the first ones.
func (w *world) connectUsers() error {
	for _, f := range w.fronts {
		for _, user := range users {
			if err := w.client(user, f).do(w.ctx, http.MethodGet, "/readyz", nil).failure(); err != nil {
				return err
			}
		}
	}
	return nil
}

// registerBackend creates the Service, the EndpointSlice and the APIService of a backend.
func (w *world) registerBackend(c *client, b *backend) error {
	ready := true
	endpoint := discoveryv1.Endpoint{Addresses: []string{b.host.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
	if err := w.registerService(c, backendNamespace, b.name, []int32{backendPort, otherPort}, backendPort, []discoveryv1.Endpoint{endpoint}); err != nil {
		return err
	}
	return c.do(w.ctx, http.MethodPost, "/apis/apiregistration.k8s.io/v1/apiservices", w.apiServiceOf(b)).failure()
}

// registerService creates a Service and its EndpointSlice. All of its ports lead to the port target of the endpoints.
func (w *world) registerService(c *client, namespace, name string, ports []int32, target int32, endpoints []discoveryv1.Endpoint) error {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
	}
	for _, port := range ports {
		portName := fmt.Sprintf("port-%d", port)
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: portName, Port: port})
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &portName, Port: &target})
	}
	if err := c.do(w.ctx, http.MethodPost, "/api/v1/namespaces/"+namespace+"/services", service).failure(); err != nil {
		return err
	}
	return c.do(w.ctx, http.MethodPost, "/apis/discovery.k8s.io/v1/namespaces/"+namespace+"/endpointslices", slice).failure()
}

func (w *world) apiServiceOf(b *backend) *apiregistrationv1.APIService {
	port := int32(backendPort)
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: b.apiService(), Annotations: w.annotationsOf(b)},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: b.group, Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: b.server.CABundle(),
			Service: &apiregistrationv1.ServiceReference{Namespace: backendNamespace, Name: b.name, Port: &port},
		},
	}
}

// shortestPoll and longestPoll bound the interval between two checks of a condition, in virtual time. A check takes as much CPU time
// as an idle second, so that the interval grows with the time that has passed.
const shortestPoll, longestPoll = time.Second, 5 * time.Second

// await returns nil when check does, and its last error after a time.
func (w *world) await(limit time.Duration, check func() error) error {
	began := time.Now()
	for {
		err := check()
		if err == nil || time.Since(began) >= limit || w.ctx.Err() != nil {
			return err
		}
		time.Sleep(min(max(shortestPoll, time.Since(began)/3), longestPoll))
	}
}

// running returns the front doors that run.
func (w *world) running() []*front {
	var all []*front
	for _, f := range w.fronts {
		if f.server != nil {
			all = append(all, f)
		}
	}
	return all
}
