package apiservice

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/transport"
)

// The parts of a verdict, for whoever comes to one of its own by another way and should say it in the same words.

// Resolve follows spec.service of a remote APIService over objects that somebody else read: its Service, nil when there
// is none, and that Service's EndpointSlices. The condition is nil when there is something to ask; the Spec is nil when
// the Service is missing.
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

// BundleFault is the message about a spec.caBundle that does not parse.
func BundleFault(err error) string { return bundleMessage(err) }

// ProbeURL is what a backend is asked for a group-version, as messages name it.
func ProbeURL(ref *apiregistrationv1.ServiceReference, gv schema.GroupVersion) string {
	return "https://" + hostPort(serverName(ref), portOf(ref)) + discoveryPath(gv)
}

// DiscoveryPath is what every server must answer for a group-version it serves.
func DiscoveryPath(gv schema.GroupVersion) string { return discoveryPath(gv) }

// NoAnswer is the message about a probe of url that got no answer because of err.
func NoAnswer(url string, err error) string { return failureOf(err).message(url) }

// BadAnswer is the message about a probe of url that got an answer which does not pass.
func BadAnswer(url string, code int) string { return failureOfStatus(code).message(url) }

// Plain makes one line of bounded length, without control characters, of a text that a backend may have had a hand in.
func Plain(text string) string { return plain(text) }
