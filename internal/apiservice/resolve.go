package apiservice

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/transport"
)

const defaultServicePort = 443

// resolver finds out where a Service leads. It reads caches only.
type resolver struct {
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
	// endpointRouting sends requests to endpoints; otherwise they go to the cluster IP of Services that have one.
	endpointRouting bool
}

// resolution is where an APIService leads, or why it leads nowhere.
type resolution struct {
	// spec is what to reach. It is meaningful beside a problem too, when known: its endpoints may still be finishing
	// requests.
	spec *transport.Spec
	// problem is nil when there is something to ask.
	problem *problem
}

// problem is a reason and message in the incumbent's words, because people and alerts match on them.
type problem struct {
	status  apiregistrationv1.ConditionStatus
	reason  string
	message string
}

func falseBecause(reason, format string, args ...any) *problem {
	return &problem{apiregistrationv1.ConditionFalse, reason, fmt.Sprintf(format, args...)}
}

func unknownBecause(reason, format string, args ...any) *problem {
	return &problem{apiregistrationv1.ConditionUnknown, reason, fmt.Sprintf(format, args...)}
}

// resolve follows spec.service of a remote APIService.
func (r *resolver) resolve(spec *apiregistrationv1.APIServiceSpec) resolution {
	ref := spec.Service
	service, err := r.services.Services(ref.Namespace).Get(ref.Name)
	if apierrors.IsNotFound(err) {
		return resolution{problem: falseBecause(serviceNotFound, "service/%s in %q is not present", ref.Name, ref.Namespace)}
	}
	if err != nil {
		return resolution{problem: unknownBecause("ServiceAccessError", "service/%s in %q cannot be checked due to: %v", ref.Name, ref.Namespace, err)}
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
		// The incumbent refuses these when it routes to endpoints. There is nothing else to route to, so we do not.
		if service.Spec.ExternalName == "" {
			out.problem = falseBecause(failedDiscoveryCheck, "service/%s in %q has no external name", ref.Name, ref.Namespace)
			return out
		}
		out.spec.Endpoints = []transport.Endpoint{{Address: hostPort(service.Spec.ExternalName, port)}}
		out.spec.LoopbackOK = true
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, "":
		out.spec.Endpoints, out.problem = r.inCluster(service, port)
	default:
		out.problem = falseBecause(failedDiscoveryCheck, "unsupported service type %q", service.Spec.Type)
	}
	return out
}

// inCluster finds the endpoints of a Service with a selector or with slices of its own. The incumbent inspects slices
// of ClusterIP Services only; for the other types it finds out at the resolver and says so in the resolver's words.
func (r *resolver) inCluster(service *corev1.Service, port int32) ([]transport.Endpoint, *problem) {
	clusterIP := service.Spec.Type == corev1.ServiceTypeClusterIP || service.Spec.Type == ""
	portName, ok := servicePortName(service, port)
	if !ok {
		if !clusterIP {
			return nil, falseBecause(failedDiscoveryCheck, "no service port %d found for service %q", port, service.Name)
		}
		return nil, falseBecause("ServicePortError", "service/%s in %q is not listening on port %d", service.Name, service.Namespace, port)
	}
	toEndpoints := r.endpointRouting || service.Spec.ClusterIP == "" || service.Spec.ClusterIP == corev1.ClusterIPNone
	address := []transport.Endpoint{{Address: hostPort(service.Spec.ClusterIP, port)}}
	if !toEndpoints && !clusterIP {
		return address, nil
	}

	found, err := r.slices.EndpointSlices(service.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service.Name}))
	if err != nil {
		return nil, unknownBecause("EndpointsAccessError", "service/%s in %q cannot be checked due to: %v", service.Name, service.Namespace, err)
	}
	endpoints := endpointsOf(found, portName, service.Spec.IPFamilies)
	var missing *problem
	switch {
	case slices.ContainsFunc(endpoints, func(e transport.Endpoint) bool { return !e.Terminating }):
	case !clusterIP:
		missing = falseBecause(failedDiscoveryCheck, "no endpoints available for service %q", service.Name)
	case len(found) == 0:
		missing = falseBecause("EndpointsNotFound", "cannot find endpointslices for service/%s in %q", service.Name, service.Namespace)
	default:
		missing = falseBecause("MissingEndpoints", "endpointslices for service/%s in %q have no addresses with port name %q", service.Name, service.Namespace, portName)
	}
	if !toEndpoints {
		return address, missing
	}
	return endpoints, missing
}

// endpointsOf collects the endpoints of one address family that serve a named port: the Service's first family that has
// a ready one, so that a dual stack pod is not two endpoints. Terminating endpoints that still serve are listed as such:
// they get no new requests, and the requests they have may finish.
func endpointsOf(found []*discoveryv1.EndpointSlice, portName string, families []corev1.IPFamily) []transport.Endpoint {
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
		endpoints := tidy(byFamily[family])
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

// endpointOf reads one endpoint; false when it takes part in nothing. A condition that is not set counts as kube-proxy
// counts it: ready, serving, and not terminating.
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
	// Only the first address counts: the API says that several in one endpoint are interchangeable and that consumers
	// may ignore the rest, and kube-proxy does.
	return transport.Endpoint{Address: hostPort(e.Addresses[0], port), Zone: zoneOf(e), Terminating: !ready}, true
}

// zoneOf prefers the hint, the zone that should use the endpoint, to the zone it is in: hints differ from zones where
// the control plane evened out the load.
func zoneOf(e *discoveryv1.Endpoint) string {
	if e.Hints != nil && len(e.Hints.ForZones) > 0 {
		return e.Hints.ForZones[0].Name
	}
	if e.Zone != nil {
		return *e.Zone
	}
	return ""
}

// tidy sorts by address and drops duplicates: an endpoint may be in two slices for a moment while the slice controller
// moves it. The one that still takes requests wins.
func tidy(endpoints []transport.Endpoint) []transport.Endpoint {
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

// portOf is the port that defaulting puts there; objects from before it was defaulted do not have it.
func portOf(ref *apiregistrationv1.ServiceReference) int32 {
	if ref.Port == nil {
		return defaultServicePort
	}
	return *ref.Port
}

// serverName is what the serving certificate of a backend must be for, whatever the type of its Service.
func serverName(ref *apiregistrationv1.ServiceReference) string {
	return ref.Name + "." + ref.Namespace + ".svc"
}

func hostPort(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// Services finds out where Services lead, by the rules that hold for those of APIServices. It reads caches only.
type Services struct {
	Services       corelisters.ServiceLister
	EndpointSlices discoverylisters.EndpointSliceLister
	// EndpointRouting leads to endpoints; otherwise to the cluster address of a Service that has one. Default false.
	EndpointRouting bool
}

// Address is one of the addresses, host:port, that a port of a Service leads to.
func (s Services) Address(namespace, name string, port int32) (string, error) {
	r := resolver{services: s.Services, slices: s.EndpointSlices, endpointRouting: s.EndpointRouting}
	found := r.resolve(&apiregistrationv1.APIServiceSpec{
		Service: &apiregistrationv1.ServiceReference{Namespace: namespace, Name: name, Port: &port},
	})
	if found.problem != nil {
		return "", errors.New(found.problem.message)
	}
	var taking []transport.Endpoint
	for _, e := range found.spec.Endpoints {
		if !e.Terminating {
			taking = append(taking, e)
		}
	}
	if len(taking) == 0 {
		return "", errors.New("no endpoint takes requests")
	}
	return taking[rand.IntN(len(taking))].Address, nil
}
