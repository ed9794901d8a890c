package apiservice

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/transport"
)

func service(kind corev1.ServiceType, clusterIP string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metrics", Name: "server"},
		Spec:       corev1.ServiceSpec{Type: kind, ClusterIP: clusterIP, Ports: ports, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
	}
}

func slice(name string, family discoveryv1.AddressType, portName string, port int32, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "metrics", Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: "server"},
		},
		AddressType: family,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port}},
		Endpoints:   endpoints,
	}
}

func endpoint(address string, change ...func(*discoveryv1.Endpoint)) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{address}}
	for _, f := range change {
		f(&e)
	}
	return e
}

func notReady(e *discoveryv1.Endpoint) { e.Conditions.Ready = new(false) }
func leaving(e *discoveryv1.Endpoint) {
	e.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
}
func gone(e *discoveryv1.Endpoint) {
	e.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(true)}
}
func inZone(zone string) func(*discoveryv1.Endpoint) {
	return func(e *discoveryv1.Endpoint) { e.Zone = &zone }
}
func forZone(zone string) func(*discoveryv1.Endpoint) {
	return func(e *discoveryv1.Endpoint) {
		e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
	}
}

func listers(t *testing.T, s *corev1.Service, found ...*discoveryv1.EndpointSlice) *resolver {
	t.Helper()
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	services := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	endpointSlices := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	if s != nil {
		if err := services.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, es := range found {
		if err := endpointSlices.Add(es); err != nil {
			t.Fatal(err)
		}
	}
	return &resolver{
		services:        corelisters.NewServiceLister(services),
		slices:          discoverylisters.NewEndpointSliceLister(endpointSlices),
		endpointRouting: true,
	}
}

// withEndpoints makes a resolver read Endpoints too.
//
//lint:ignore SA1019 deprecated, and still written for Services without selector
func withEndpoints(t *testing.T, r *resolver, endpoints ...*corev1.Endpoints) *resolver {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, e := range endpoints {
		if err := indexer.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	r.endpoints = corelisters.NewEndpointsLister(indexer)
	return r
}

func TestResolve(t *testing.T) {
	https := corev1.ServicePort{Name: "https", Port: 443}
	const ipv4, ipv6 = discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6
	slices := func(s ...*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice { return s }
	at := func(addresses ...string) []transport.Endpoint {
		var out []transport.Endpoint
		for _, a := range addresses {
			out = append(out, transport.Endpoint{Address: a})
		}
		return out
	}
	external := service(corev1.ServiceTypeExternalName, "")
	external.Spec.ExternalName = "metrics.example.com"

	for name, test := range map[string]struct {
		service   *corev1.Service
		slices    []*discoveryv1.EndpointSlice
		clusterIP bool // endpoint routing is off
		want      []transport.Endpoint
		reason    string
		message   string
	}{
		"no such Service": {
			reason: "ServiceNotFound", message: `service/server in "metrics" is not present`,
		},
		"the port is not one of the Service's": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", corev1.ServicePort{Name: "http", Port: 80}),
			reason:  "ServicePortError", message: `service/server in "metrics" is not listening on port 443`,
		},
		"no slices": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", https),
			reason:  "EndpointsNotFound", message: `cannot find endpointslices for service/server in "metrics"`,
		},
		"slices of another port": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", https),
			slices:  slices(slice("a", ipv4, "http", 8080, endpoint("10.1.0.1"))),
			reason:  "MissingEndpoints", message: `endpointslices for service/server in "metrics" have no addresses with port name "https"`,
		},
		"only endpoints that are not ready": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", https),
			slices:  slices(slice("a", ipv4, "https", 8443, endpoint("10.1.0.1", notReady))),
			reason:  "MissingEndpoints", message: `endpointslices for service/server in "metrics" have no addresses with port name "https"`,
		},
		"only endpoints that are leaving: they may finish what they have": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", https),
			slices:  slices(slice("a", ipv4, "https", 8443, endpoint("10.1.0.1", leaving), endpoint("10.1.0.2", gone))),
			want:    []transport.Endpoint{{Address: "10.1.0.1:8443", Terminating: true}},
			reason:  "MissingEndpoints", message: `endpointslices for service/server in "metrics" have no addresses with port name "https"`,
		},
		"ready endpoints of all slices, sorted": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", https),
			slices: slices(
				slice("b", ipv4, "https", 8443, endpoint("10.1.0.3"), endpoint("10.1.0.2", notReady)),
				slice("a", ipv4, "https", 8443, endpoint("10.1.0.1", leaving), endpoint("10.1.0.4")),
			),
			want: []transport.Endpoint{{Address: "10.1.0.1:8443", Terminating: true}, {Address: "10.1.0.3:8443"}, {Address: "10.1.0.4:8443"}},
		},
		"the same endpoint in two slices while it is moved": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", https),
			slices: slices(
				slice("a", ipv4, "https", 8443, endpoint("10.1.0.1", leaving)),
				slice("b", ipv4, "https", 8443, endpoint("10.1.0.1")),
			),
			want: at("10.1.0.1:8443"),
		},
		"slices whose target port differs": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", https),
			slices: slices(
				slice("a", ipv4, "https", 8443, endpoint("10.1.0.1")),
				slice("b", ipv4, "https", 9443, endpoint("10.1.0.2")),
			),
			want: at("10.1.0.1:8443", "10.1.0.2:9443"),
		},
		"an unnamed port": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", corev1.ServicePort{Port: 443}),
			slices:  slices(slice("a", ipv4, "", 8443, endpoint("10.1.0.1"))),
			want:    at("10.1.0.1:8443"),
		},
		"dual stack: one family, the Service's first": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", https),
			slices: slices(
				slice("a", ipv6, "https", 8443, endpoint("fd00::1")),
				slice("b", ipv4, "https", 8443, endpoint("10.1.0.1")),
			),
			want: at("10.1.0.1:8443"),
		},
		"dual stack: the other family when the first has nothing ready": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", https),
			slices: slices(
				slice("a", ipv6, "https", 8443, endpoint("fd00::1")),
				slice("b", ipv4, "https", 8443, endpoint("10.1.0.1", notReady)),
			),
			want: at("[fd00::1]:8443"),
		},
		"zones, and hints before zones": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", https),
			slices:  slices(slice("a", ipv4, "https", 8443, endpoint("10.1.0.1", inZone("a")), endpoint("10.1.0.2", inZone("a"), forZone("b")))),
			want:    []transport.Endpoint{{Address: "10.1.0.1:8443", Zone: "a"}, {Address: "10.1.0.2:8443", Zone: "b"}},
		},
		"an endpoint without an address": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", https),
			slices:  slices(slice("a", ipv4, "https", 8443, discoveryv1.Endpoint{})),
			reason:  "MissingEndpoints", message: `endpointslices for service/server in "metrics" have no addresses with port name "https"`,
		},
		"headless": {
			service: service(corev1.ServiceTypeClusterIP, corev1.ClusterIPNone, https),
			slices:  slices(slice("a", ipv4, "https", 8443, endpoint("10.1.0.1"))),
			want:    at("10.1.0.1:8443"),
		},
		"headless where cluster IPs are used, which the incumbent cannot": {
			service: service(corev1.ServiceTypeClusterIP, corev1.ClusterIPNone, https),
			slices:  slices(slice("a", ipv4, "https", 8443, endpoint("10.1.0.1"))), clusterIP: true,
			want: at("10.1.0.1:8443"),
		},
		"cluster IP": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", https),
			slices:  slices(slice("a", ipv4, "https", 8443, endpoint("10.1.0.1"))), clusterIP: true,
			want: at("10.0.0.1:443"),
		},
		"cluster IP of IPv6": {
			service: service(corev1.ServiceTypeClusterIP, "fd00::10", https),
			slices:  slices(slice("a", ipv6, "https", 8443, endpoint("fd00::1"))), clusterIP: true,
			want: at("[fd00::10]:443"),
		},
		"cluster IP without endpoints": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", https), clusterIP: true,
			want:   at("10.0.0.1:443"),
			reason: "EndpointsNotFound", message: `cannot find endpointslices for service/server in "metrics"`,
		},
		"node port to endpoints": {
			service: service(corev1.ServiceTypeNodePort, "10.0.0.1", https),
			slices:  slices(slice("a", ipv4, "https", 8443, endpoint("10.1.0.1"))),
			want:    at("10.1.0.1:8443"),
		},
		"node port to its cluster IP, slices not inspected": {
			service: service(corev1.ServiceTypeNodePort, "10.0.0.1", https), clusterIP: true,
			want: at("10.0.0.1:443"),
		},
		"load balancer to endpoints": {
			service: service(corev1.ServiceTypeLoadBalancer, "10.0.0.1", https),
			slices:  slices(slice("a", ipv4, "https", 8443, endpoint("10.1.0.1"))),
			want:    at("10.1.0.1:8443"),
		},
		"load balancer without endpoints: the resolver's words": {
			service: service(corev1.ServiceTypeLoadBalancer, "10.0.0.1", https),
			reason:  "FailedDiscoveryCheck", message: `no endpoints available for service "server"`,
		},
		"node port without the port: the resolver's words": {
			service: service(corev1.ServiceTypeNodePort, "10.0.0.1"), clusterIP: true,
			reason: "FailedDiscoveryCheck", message: `no service port 443 found for service "server"`,
		},
		"external name, endpoint routing":    {service: external, want: at("metrics.example.com:443")},
		"external name, cluster IPs":         {service: external, clusterIP: true, want: at("metrics.example.com:443")},
		"external name that names nothing":   {service: service(corev1.ServiceTypeExternalName, ""), reason: "FailedDiscoveryCheck", message: `service/server in "metrics" has no external name`},
		"a type that does not exist (yet)":   {service: service("Mesh", "10.0.0.1", https), reason: "FailedDiscoveryCheck", message: `unsupported service type "Mesh"`},
		"a Service without a type is as one": {service: service("", "10.0.0.1", https), reason: "EndpointsNotFound", message: `cannot find endpointslices for service/server in "metrics"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := listers(t, test.service, test.slices...)
			r.endpointRouting = !test.clusterIP
			got := r.resolve(&apiregistrationv1.APIServiceSpec{
				Service:  &apiregistrationv1.ServiceReference{Namespace: "metrics", Name: "server", Port: new(int32(443))},
				CABundle: []byte("bundle"),
			})
			var p problem
			if got.problem != nil {
				p = *got.problem
			}
			if p.reason != test.reason || p.message != test.message {
				t.Errorf("problem = %q %q, want %q %q", p.reason, p.message, test.reason, test.message)
			}
			if test.service == nil {
				if got.spec != nil {
					t.Errorf("spec without a Service = %v, want none", got.spec)
				}
				return
			}
			want := &transport.Spec{
				Name: "metrics/server:443", ServerName: "server.metrics.svc", CABundle: []byte("bundle"),
				Endpoints: test.want, LoopbackOK: test.service == external,
			}
			if diff := cmp.Diff(want, got.spec); diff != "" {
				t.Errorf("spec differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResolveUsesPort443WhenDefaultingDidNotRun(t *testing.T) {
	r := listers(t, service(corev1.ServiceTypeClusterIP, "10.0.0.1"))
	got := r.resolve(&apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "metrics", Name: "server"}})
	if want := `service/server in "metrics" is not listening on port 443`; got.problem.message != want {
		t.Errorf("message = %q, want %q", got.problem.message, want)
	}
}

// brokenServiceLister and brokenSliceLister are caches that cannot be read.
type (
	brokenServiceLister struct{ corelisters.ServiceLister }
	brokenSliceLister   struct {
		discoverylisters.EndpointSliceLister
	}
)

func (brokenServiceLister) Services(string) corelisters.ServiceNamespaceLister {
	return brokenServices{}
}
func (brokenSliceLister) EndpointSlices(string) discoverylisters.EndpointSliceNamespaceLister {
	return brokenSlices{}
}

type brokenServices struct {
	corelisters.ServiceNamespaceLister
}

func (brokenServices) Get(string) (*corev1.Service, error) { return nil, errors.New("out of order") }

type brokenSlices struct {
	discoverylisters.EndpointSliceNamespaceLister
}

func (brokenSlices) List(labels.Selector) ([]*discoveryv1.EndpointSlice, error) {
	return nil, errors.New("out of order")
}

func TestResolveReturnsUnknownWithoutData(t *testing.T) {
	spec := &apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "metrics", Name: "server"}}
	const message = `service/server in "metrics" cannot be checked due to: out of order`

	r := listers(t, service(corev1.ServiceTypeClusterIP, "10.0.0.1", corev1.ServicePort{Port: 443}))
	r.slices = brokenSliceLister{}
	want := problem{apiregistrationv1.ConditionUnknown, "EndpointsAccessError", message}
	if got := r.resolve(spec); *got.problem != want {
		t.Errorf("problem with unreadable slices = %v, want %v", *got.problem, want)
	}
	r.services = brokenServiceLister{}
	want.reason = "ServiceAccessError"
	if got := r.resolve(spec); *got.problem != want {
		t.Errorf("problem with unreadable Services = %v, want %v", *got.problem, want)
	}
}

func TestAddressOfAService(t *testing.T) {
	port := corev1.ServicePort{Name: "https", Port: 443}
	for name, c := range map[string]struct {
		service  *corev1.Service
		slices   []*discoveryv1.EndpointSlice
		routing  bool
		want     map[string]bool // every address; false: terminating
		problems string
	}{
		"endpoints that take requests, all of them": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", port), routing: true,
			slices: []*discoveryv1.EndpointSlice{slice("a", discoveryv1.AddressTypeIPv4, "https", 8443,
				endpoint("10.1.0.1"), endpoint("10.1.0.2"), endpoint("10.1.0.3", notReady), endpoint("10.1.0.4", leaving))},
			want: map[string]bool{"10.1.0.1:8443": true, "10.1.0.2:8443": true, "10.1.0.4:8443": false},
		},
		"the cluster address": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", port),
			slices:  []*discoveryv1.EndpointSlice{slice("a", discoveryv1.AddressTypeIPv4, "https", 8443, endpoint("10.1.0.1"))},
			want:    map[string]bool{"10.0.0.1:443": true},
		},
		"another name": {
			service: &corev1.Service{ObjectMeta: service("", "").ObjectMeta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "hooks.example.com"}},
			routing: true, want: map[string]bool{"hooks.example.com:443": true},
		},
		"nobody": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", port), routing: true,
			slices:   []*discoveryv1.EndpointSlice{slice("a", discoveryv1.AddressTypeIPv4, "https", 8443, endpoint("10.1.0.4", leaving))},
			problems: `have no addresses with port name "https"`,
		},
		"a port that the service has not": {
			service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", corev1.ServicePort{Port: 80}), routing: true, problems: "is not listening on port 443",
		},
		"no service": {problems: `service/server in "metrics" is not present`},
	} {
		t.Run(name, func(t *testing.T) {
			r := listers(t, c.service, c.slices...)
			ways := Services{Services: r.services, EndpointSlices: r.slices, EndpointRouting: c.routing}
			spec, err := ways.Spec("metrics", "server", 443)
			if c.problems != "" {
				if err == nil || !strings.Contains(err.Error(), c.problems) {
					t.Fatalf("Spec() = %v, error %v, want an error that contains %q", spec, err, c.problems)
				}
				return
			}
			if err != nil || spec.Name != "metrics/server:443" || spec.ServerName != "server.metrics.svc" {
				t.Fatalf("Spec() = %v, error %v, want name metrics/server:443 and server name server.metrics.svc", spec, err)
			}
			given := map[string]bool{}
			for _, e := range spec.Endpoints {
				if given[e.Address] = true; c.want[e.Address] == e.Terminating {
					t.Errorf("endpoint = %+v, want one of %v", e, c.want)
				}
			}
			if len(given) != len(c.want) {
				t.Errorf("endpoints = %v, want %v", given, c.want)
			}
		})
	}
}
