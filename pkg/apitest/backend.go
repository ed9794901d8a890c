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

	"portico.dev/internal/tools/drill/faulty"
)

// Backend is an extension server behind an APIService. It has at most one fault at a time. A method that injects a fault
// returns when the server has it. The front door detects it later; use WaitUnavailable and WaitAvailable to wait for that.
type Backend struct {
	// GroupVersion is the group-version that the backend serves. APIService is the name of its APIService.
	GroupVersion schema.GroupVersion
	APIService   string

	env    *Env
	server *faulty.Server
	client *clientset.Clientset
}

// Backend starts an extension server for version v1 of a group and registers it. It serves the namespaced resource widgets.
// The objects consist of metadata, support create, update, watch and delete, and are kept in memory. Backend returns when the
// server is available. The server is removed at the end of the test.
func (e *Env) Backend(group string) *Backend {
	e.t.Helper()
	return e.startBackend(group, true)
}

// ReadOnlyBackend starts a Backend that serves the resource readings. It supports get and list and stores no objects, as a
// metrics server does.
func (e *Env) ReadOnlyBackend(group string) *Backend {
	e.t.Helper()
	return e.startBackend(group, false)
}

// backendNamespace contains the Services of backends. Tests do not delete it.
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

// register creates the Service and the APIService. They are deleted before the server stops.
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

// WaitAvailable waits until the APIService is available.
func (b *Backend) WaitAvailable() {
	b.env.t.Helper()
	b.env.waitAvailable(b.client, b.APIService, apiregistrationv1.ConditionTrue)
}

// WaitUnavailable waits until the front door has marked the APIService unavailable. Faults that only affect single requests,
// such as slow or truncated responses, do not make it unavailable.
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

// Heal removes the fault.
func (b *Backend) Heal() { b.env.t.Helper(); b.fault(faulty.Healthy) }

// Refuse closes all connections and resets new ones, like the exit of a process.
func (b *Backend) Refuse() { b.env.t.Helper(); b.fault(faulty.Refuse) }

// Blackhole accepts connections, but transfers no byte in either direction, on old and new connections.
func (b *Backend) Blackhole() { b.env.t.Helper(); b.fault(faulty.Blackhole) }

// Hang reads requests and answers HTTP/2 pings, but sends no responses.
func (b *Backend) Hang() { b.env.t.Helper(); b.fault(faulty.Hang) }

// Drip sends response bodies one byte at a time.
func (b *Backend) Drip() { b.env.t.Helper(); b.fault(faulty.SlowDrip) }

// ResetBodies resets every response about objects after half of its body.
func (b *Backend) ResetBodies() { b.env.t.Helper(); b.fault(faulty.ResetMidBody) }

// GoAway closes each connection after a few requests, with GOAWAY on HTTP/2.
func (b *Backend) GoAway() { b.env.t.Helper(); b.fault(faulty.GoAwayStorm) }

// ExpireCertificate presents an expired certificate.
func (b *Backend) ExpireCertificate() { b.env.t.Helper(); b.fault(faulty.ExpiredCertificate) }

// ChangeAuthority presents a certificate of a CA that is not in the caBundle.
func (b *Backend) ChangeAuthority() { b.env.t.Helper(); b.fault(faulty.WrongAuthority) }

// ChangeName presents a certificate for another name.
func (b *Backend) ChangeName() { b.env.t.Helper(); b.fault(faulty.WrongName) }

// GarbleDiscovery answers discovery requests with 200 and a page of HTML.
func (b *Backend) GarbleDiscovery() { b.env.t.Helper(); b.fault(faulty.GarbageDiscovery) }

// EmptyDiscovery reports no resources in discovery, while the server serves them.
func (b *Backend) EmptyDiscovery() { b.env.t.Helper(); b.fault(faulty.VanishingDiscovery) }

// EndlessOpenAPI sends OpenAPI documents that never end.
func (b *Backend) EndlessOpenAPI() { b.env.t.Helper(); b.fault(faulty.HugeOpenAPI) }

// Stored returns the number of stored objects in a namespace, whether or not clients see them.
func (b *Backend) Stored(namespace string) int { return b.server.Stored(namespace) }
