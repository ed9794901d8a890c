package apitest

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"portico.dev/internal/drill/faulty"
)

// Backend is an extension server behind an APIService, which has one fault at a time. A method that begins a fault returns when the server
// has it; what clients see of it follows, since the front door notices by itself. WaitUnavailable and WaitAvailable wait for that.
type Backend struct {
	// GroupVersion is what it serves, and APIService the name of the object that registers it.
	GroupVersion schema.GroupVersion
	APIService   string

	env    *Env
	server *faulty.Server
	client *clientset.Clientset
}

// Backend starts an extension server for the version v1 of a group and registers it. Its resource is widgets, namespaced objects with
// metadata only, which can be created, changed, watched and deleted, and are kept in memory. It returns when the server is available, which
// is removed when the test ends.
func (e *Env) Backend(group string) *Backend {
	e.t.Helper()
	return e.startBackend(group, true)
}

// ReadOnlyBackend is a Backend whose resource is readings, which can be got and listed and are not stored anywhere, like the metrics of a
// metrics server.
func (e *Env) ReadOnlyBackend(group string) *Backend {
	e.t.Helper()
	return e.startBackend(group, false)
}

// backendNamespace has the Services of backends. It is not deleted by tests.
const backendNamespace = metav1.NamespaceSystem

func (e *Env) startBackend(group string, stores bool) *Backend {
	e.t.Helper()
	service := fmt.Sprintf("backend-%d", e.serial.Add(1)) + "-" + rfc1123(group)
	server, err := faulty.New(faulty.Config{
		Group: group, ServerName: service + "." + backendNamespace + ".svc", Address: "127.0.0.1:0", Stores: stores,
	})
	e.must("backend of "+group, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	e.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			e.t.Errorf("backend of %s: %v", group, err)
		}
	})
	select {
	case <-server.Ready():
	case err := <-done:
		done <- nil
		e.t.Fatalf("backend of %s: %v", group, err)
	}
	b := &Backend{GroupVersion: schema.GroupVersion{Group: group, Version: "v1"}, env: e, server: server}
	b.APIService = b.GroupVersion.Version + "." + group
	b.client, err = clientset.NewForConfig(e.Config)
	e.must("client of APIServices", err)
	b.register(service)
	b.WaitAvailable()
	return b
}

// register writes the Service and the APIService, which are deleted before the server stops.
func (b *Backend) register(service string) {
	e := b.env
	e.t.Helper()
	ctx, cancel := e.context()
	defer cancel()
	_, err := e.client.CoreV1().Services(backendNamespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: service},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	e.must("register "+b.APIService, err)
	port := b.server.Port()
	_, err = b.client.ApiregistrationV1().APIServices().Create(ctx, &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: b.APIService},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: b.GroupVersion.Group, Version: b.GroupVersion.Version, GroupPriorityMinimum: 1000, VersionPriority: 100,
			CABundle: b.server.CABundle(),
			Service:  &apiregistrationv1.ServiceReference{Namespace: backendNamespace, Name: service, Port: &port},
		},
	}, metav1.CreateOptions{})
	e.must("register "+b.APIService, err)
	e.t.Cleanup(func() { e.unregister(b.client, service) })
}

// WaitAvailable waits until the front door reaches the server.
func (b *Backend) WaitAvailable() {
	b.env.t.Helper()
	b.env.waitAvailable(b.client, b.APIService, apiregistrationv1.ConditionTrue)
}

// WaitUnavailable waits until the front door has noticed that the server does not work. Not every fault makes it unavailable: slow or
// broken responses to single requests do not.
func (b *Backend) WaitUnavailable() {
	b.env.t.Helper()
	b.env.waitAvailable(b.client, b.APIService, apiregistrationv1.ConditionFalse)
}

func (e *Env) waitAvailable(client *clientset.Clientset, name string, want apiregistrationv1.ConditionStatus) {
	e.t.Helper()
	ctx, cancel := e.context()
	defer cancel()
	var last []apiregistrationv1.APIServiceCondition
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		now, err := client.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		last = now.Status.Conditions
		for _, c := range last {
			if c.Type == apiregistrationv1.Available && c.Status == want {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		e.t.Fatalf("APIService %s is not Available=%s: %v: %+v", name, want, err, last)
	}
}

func (b *Backend) fault(f faulty.Fault) {
	b.env.t.Helper()
	b.env.must("change the fault of "+b.APIService, b.server.SetFault(f))
}

// Heal ends the fault.
func (b *Backend) Heal() { b.env.t.Helper(); b.fault(faulty.Healthy) }

// Refuse cuts all connections and refuses new ones, like a process that has ended.
func (b *Backend) Refuse() { b.env.t.Helper(); b.fault(faulty.Refuse) }

// Blackhole accepts connections, and not a byte goes either way, on old ones neither, like a broken network.
func (b *Backend) Blackhole() { b.env.t.Helper(); b.fault(faulty.Blackhole) }

// Hang reads requests, and answers HTTP/2 pings but no request.
func (b *Backend) Hang() { b.env.t.Helper(); b.fault(faulty.Hang) }

// Drip sends bodies one byte at a time.
func (b *Backend) Drip() { b.env.t.Helper(); b.fault(faulty.SlowDrip) }

// ResetBodies breaks every response about objects off after half of its body.
func (b *Backend) ResetBodies() { b.env.t.Helper(); b.fault(faulty.ResetMidBody) }

// GoAway ends each connection after a few requests, with GOAWAY on HTTP/2.
func (b *Backend) GoAway() { b.env.t.Helper(); b.fault(faulty.GoAwayStorm) }

// ExpireCertificate shows a certificate that has expired.
func (b *Backend) ExpireCertificate() { b.env.t.Helper(); b.fault(faulty.ExpiredCertificate) }

// ChangeAuthority shows a certificate of a CA that is not in the caBundle.
func (b *Backend) ChangeAuthority() { b.env.t.Helper(); b.fault(faulty.WrongAuthority) }

// ChangeName shows a certificate for another name.
func (b *Backend) ChangeName() { b.env.t.Helper(); b.fault(faulty.WrongName) }

// GarbleDiscovery answers discovery with a page of HTML and status 200.
func (b *Backend) GarbleDiscovery() { b.env.t.Helper(); b.fault(faulty.GarbageDiscovery) }

// EmptyDiscovery answers that there are no resources, while they are served.
func (b *Backend) EmptyDiscovery() { b.env.t.Helper(); b.fault(faulty.VanishingDiscovery) }

// EndlessOpenAPI sends OpenAPI documents without end.
func (b *Backend) EndlessOpenAPI() { b.env.t.Helper(); b.fault(faulty.HugeOpenAPI) }

// Stored is how many objects the server has in a namespace, whatever it tells clients.
func (b *Backend) Stored(namespace string) int { return b.server.Stored(namespace) }
