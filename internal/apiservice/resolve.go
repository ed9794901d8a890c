package apiservice

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/transport"
)

const defaultServicePort = 443

// resolver finds the endpoints of a Service. It reads caches only.
type resolver struct {
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
	// endpoints are read for Services without EndpointSlices. Nil if they are never read.
	endpoints corelisters.EndpointsLister
	// endpointRouting resolves to endpoints; otherwise to the cluster IP of Services that have one.
	endpointRouting bool
}

// resolution is the backend of an APIService, or the reason why it has none.
type resolution struct {
	// spec is the backend. It may be set together with a problem: terminating endpoints may still be serving requests.
	spec *transport.Spec
	// problem is nil if the backend can be probed.
	problem *problem
}

// problem contains a reason and message in kube-aggregator's wording, because users and alerts match on them.
type problem struct {
	status  apiregistrationv1.ConditionStatus
	reason  string
	message string
}

func falseProblem(reason, format string, args ...any) *problem {
	return &problem{apiregistrationv1.ConditionFalse, reason, fmt.Sprintf(format, args...)}
}

func unknownProblem(reason, format string, args ...any) *problem {
	return &problem{apiregistrationv1.ConditionUnknown, reason, fmt.Sprintf(format, args...)}
}

// resolve resolves spec.service of a remote APIService.
func (r *resolver) resolve(spec *apiregistrationv1.APIServiceSpec) resolution {
	ref := spec.Service
	service, err := r.services.Services(ref.Namespace).Get(ref.Name)
	if apierrors.IsNotFound(err) {
		return resolution{problem: falseProblem(reasonServiceNotFound, "service/%s in %q is not present", ref.Name, ref.Namespace)}
	}
	if err != nil {
		return resolution{problem: unknownProblem(reasonServiceAccessError, "service/%s in %q cannot be checked due to: %v", ref.Name, ref.Namespace, err)}
	}
	port := portOf(ref)
	out := resolution{spec: &transport.Spec{
		Name:       fmt.Sprintf("%s/%s:%d", ref.Namespace, ref.Name, port),
		ServerName: serverName(ref),
		CABundle:   spec.CABundle,
		Insecure:   spec.InsecureSkipTLSVerify,
	}}
	switch service.Spec.Type {
	case corev1.ServiceTypeExternalName:
		// kube-aggregator refuses these if it routes to endpoints. Portico accepts them, because there is no alternative
		// destination.
		if service.Spec.ExternalName == "" {
			out.problem = falseProblem(reasonFailedDiscoveryCheck, "service/%s in %q has no external name", ref.Name, ref.Namespace)
			return out
		}
		out.spec.Endpoints = []transport.Endpoint{{Address: hostPort(service.Spec.ExternalName, port)}}
		out.spec.LoopbackOK = true
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, "":
		out.spec.Endpoints, out.problem = r.inCluster(service, port)
	default:
		out.problem = falseProblem(reasonFailedDiscoveryCheck, "unsupported service type %q", service.Spec.Type)
	}
	return out
}

// inCluster finds the endpoints of a Service with a selector or with EndpointSlices. kube-aggregator inspects slices of
// ClusterIP Services only; for the other types it fails later, with the messages of its resolver.
func (r *resolver) inCluster(service *corev1.Service, port int32) ([]transport.Endpoint, *problem) {
	clusterIP := service.Spec.Type == corev1.ServiceTypeClusterIP || service.Spec.Type == ""
	portName, ok := servicePortName(service, port)
	if !ok {
		if !clusterIP {
			return nil, falseProblem(reasonFailedDiscoveryCheck, "no service port %d found for service %q", port, service.Name)
		}
		return nil, falseProblem(reasonServicePort, "service/%s in %q is not listening on port %d", service.Name, service.Namespace, port)
	}
	toEndpoints := r.endpointRouting || service.Spec.ClusterIP == "" || service.Spec.ClusterIP == corev1.ClusterIPNone
	address := []transport.Endpoint{{Address: hostPort(service.Spec.ClusterIP, port)}}
	if !toEndpoints && !clusterIP {
		return address, nil
	}

	from := *r
	if !toEndpoints {
		from.endpoints = nil // kube-proxy, which routes the cluster IP, reads EndpointSlices only
	}
	found, err := from.endpointSlices(service, port)
	if err != nil {
		return nil, unknownProblem(reasonEndpointsAccessError, "service/%s in %q cannot be checked due to: %v", service.Name, service.Namespace, err)
	}
	endpoints := readyEndpoints(found, portName, service.Spec.IPFamilies)
	var missing *problem
	switch {
	case slices.ContainsFunc(endpoints, func(e transport.Endpoint) bool { return !e.Terminating }):
	case !clusterIP:
		missing = falseProblem(reasonFailedDiscoveryCheck, "no endpoints available for service %q", service.Name)
	case len(found) == 0:
		missing = falseProblem(reasonEndpointsNotFound, "cannot find endpointslices for service/%s in %q", service.Name, service.Namespace)
	default:
		missing = falseProblem(reasonMissingEndpoints, "endpointslices for service/%s in %q have no addresses with port name %q", service.Name, service.Namespace, portName)
	}
	if !toEndpoints {
		return address, missing
	}
	return endpoints, missing
}

// readyEndpoints returns the endpoints that serve a named port, of the Service's first address family with a ready
// endpoint, so that a dual-stack pod does not count twice. Terminating endpoints that still serve are included and marked:
// they get no new requests, and their requests may finish.
func readyEndpoints(found []*discoveryv1.EndpointSlice, portName string, families []corev1.IPFamily) []transport.Endpoint {
	byFamily := make(map[discoveryv1.AddressType][]transport.Endpoint)
	for _, slice := range found {
		port, ok := slicePort(slice, portName)
		if !ok {
			continue
		}
		for i := range slice.Endpoints {
			if e, ok := endpointOf(&slice.Endpoints[i], port); ok {
				byFamily[slice.AddressType] = append(byFamily[slice.AddressType], e)
			}
		}
	}
	var best []transport.Endpoint
	for _, family := range familiesInOrder(families) {
		endpoints := sortEndpoints(byFamily[family])
		if slices.ContainsFunc(endpoints, func(e transport.Endpoint) bool { return !e.Terminating }) {
			return endpoints
		}
		if best == nil {
			best = endpoints
		}
	}
	return best
}

func familiesInOrder(preferred []corev1.IPFamily) []discoveryv1.AddressType {
	order := make([]discoveryv1.AddressType, 0, len(preferred)+3)
	for _, f := range preferred {
		order = append(order, discoveryv1.AddressType(f))
	}
	for _, f := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN} {
		if !slices.Contains(order, f) {
			order = append(order, f)
		}
	}
	return order
}

// endpointOf converts one endpoint, or returns false if it is not usable. Conditions that are not set count as in
// kube-proxy: ready, serving, not terminating.
func endpointOf(e *discoveryv1.Endpoint, port int32) (transport.Endpoint, bool) {
	if len(e.Addresses) == 0 {
		return transport.Endpoint{}, false
	}
	ready := e.Conditions.Ready == nil || *e.Conditions.Ready
	serving := e.Conditions.Serving == nil || *e.Conditions.Serving
	terminating := e.Conditions.Terminating != nil && *e.Conditions.Terminating
	if !ready && (!terminating || !serving) {
		return transport.Endpoint{}, false
	}
	// Only the first address is used. The API defines that several addresses in one endpoint are interchangeable and that
	// consumers may ignore all but one, which kube-proxy does.
	return transport.Endpoint{Address: hostPort(e.Addresses[0], port), Zone: zoneOf(e), Terminating: !ready}, true
}

// zoneOf prefers the hint, the zone that should use the endpoint, to the endpoint's zone. They differ if the control plane
// balances load between zones.
func zoneOf(e *discoveryv1.Endpoint) string {
	if e.Hints != nil && len(e.Hints.ForZones) > 0 {
		return e.Hints.ForZones[0].Name
	}
	if e.Zone != nil {
		return *e.Zone
	}
	return ""
}

// sortEndpoints sorts by address and drops duplicates: an endpoint is in two slices for a moment while the slice controller
// moves it. An entry that is not terminating wins.
func sortEndpoints(endpoints []transport.Endpoint) []transport.Endpoint {
	slices.SortFunc(endpoints, func(a, b transport.Endpoint) int {
		switch {
		case a.Address != b.Address:
			return cmp.Compare(a.Address, b.Address)
		case a.Terminating == b.Terminating:
			return 0
		case a.Terminating:
			return 1
		default:
			return -1
		}
	})
	return slices.CompactFunc(endpoints, func(a, b transport.Endpoint) bool { return a.Address == b.Address })
}

func servicePortName(service *corev1.Service, port int32) (string, bool) {
	for _, p := range service.Spec.Ports {
		if p.Port == port {
			return p.Name, true
		}
	}
	return "", false
}

func slicePort(slice *discoveryv1.EndpointSlice, name string) (int32, bool) {
	for _, p := range slice.Ports {
		if p.Name != nil && *p.Name == name && p.Port != nil {
			return *p.Port, true
		}
	}
	return 0, false
}

// portOf returns the port, or the default of the API for objects stored without one.
func portOf(ref *apiregistrationv1.ServiceReference) int32 {
	if ref.Port == nil {
		return defaultServicePort
	}
	return *ref.Port
}

// serverName returns the DNS name that a backend's serving certificate must have, whatever the type of its Service.
func serverName(ref *apiregistrationv1.ServiceReference) string {
	return ref.Name + "." + ref.Namespace + ".svc"
}

func hostPort(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// Services resolves Services by the rules for APIServices. It reads caches only.
type Services struct {
	Services       corelisters.ServiceLister
	EndpointSlices discoverylisters.EndpointSliceLister
	// Endpoints, if set, are used for Services without selector and EndpointSlices. If nil, they are not used.
	Endpoints corelisters.EndpointsLister
	// EndpointRouting resolves to endpoints; otherwise to the cluster IP of a Service that has one. Default false.
	EndpointRouting bool
}

// Spec returns the transport.Spec for a port of a Service, without CABundle. It has at least one ready endpoint, and
// includes terminating ones that still serve. The error has the reason and the message that the condition of an APIService
// would have.
func (s Services) Spec(namespace, name string, port int32) (*transport.Spec, error) {
	r := resolver{services: s.Services, slices: s.EndpointSlices, endpoints: s.Endpoints, endpointRouting: s.EndpointRouting}
	found := r.resolve(&apiregistrationv1.APIServiceSpec{
		Service: &apiregistrationv1.ServiceReference{Namespace: namespace, Name: name, Port: &port},
	})
	if found.problem != nil {
		return nil, fmt.Errorf("%s: %s", found.problem.reason, found.problem.message)
	}
	return found.spec, nil
}

// Resolve resolves spec for callers without informers, from a Service, which is nil if it does not exist, and its
// EndpointSlices. The condition is nil if the backend can be probed; the Spec is nil if the Service is missing.
func Resolve(spec *apiregistrationv1.APIServiceSpec, service *corev1.Service, slices []*discoveryv1.EndpointSlice, endpointRouting bool) (*transport.Spec, *apiregistrationv1.APIServiceCondition) {
	services := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	found := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if service != nil {
		_ = services.Add(service) // the key function has a key for every object with a name
	}
	for _, s := range slices {
		_ = found.Add(s)
	}
	r := resolver{
		services: corelisters.NewServiceLister(services), slices: discoverylisters.NewEndpointSliceLister(found),
		endpointRouting: endpointRouting,
	}
	out := r.resolve(spec)
	if out.problem == nil {
		return out.spec, nil
	}
	c := condition(out.problem.status, out.problem.reason, out.problem.message)
	return out.spec, &c
}
