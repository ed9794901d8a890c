package apiservice

//lint:file-ignore SA1019 Endpoints are deprecated, and users still write them for Services without selector.

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Endpoints that a user writes for a Service without selector reach kube-proxy because a controller of
// kube-controller-manager mirrors them into EndpointSlices. Without kube-controller-manager the slices are missing, so the
// resolver applies the same rules.

const (
	// leaderAnnotation marks Endpoints that only hold a leader election.
	leaderAnnotation = "control-plane.alpha.kubernetes.io/leader"
	// maxMirrored is the number of addresses of one subset that are mirrored, kube-controller-manager's default.
	maxMirrored = 1000
)

// endpointSlices returns the EndpointSlices of a Service. If UsesEndpoints is true, it adds the slices into which its
// Endpoints would be mirrored.
func (r *resolver) endpointSlices(service *corev1.Service, port int32) ([]*discoveryv1.EndpointSlice, error) {
	found, err := r.slices.EndpointSlices(service.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service.Name}))
	if err != nil || r.endpoints == nil || !UsesEndpoints(service, port, found) {
		return found, err
	}
	endpoints, err := r.endpoints.Endpoints(service.Namespace).Get(service.Name)
	if apierrors.IsNotFound(err) {
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	return append(found, MirrorEndpoints(service, endpoints)...), nil
}

// UsesEndpoints reports whether the Endpoints of a Service are used in addition to its EndpointSlices: it has no selector,
// and none of the slices has the port. Slices with the port take precedence, even without ready endpoints. A controller
// that starts to mirror creates a slice for each set of ports, and the first one may lack the port.
func UsesEndpoints(service *corev1.Service, port int32, found []*discoveryv1.EndpointSlice) bool {
	name, ok := servicePortName(service, port)
	return ok && len(service.Spec.Selector) == 0 && !slices.ContainsFunc(found, func(s *discoveryv1.EndpointSlice) bool {
		_, ok := slicePort(s, name)
		return ok
	})
}

// MirrorEndpoints returns the EndpointSlices that kube-controller-manager would create from the Endpoints of a Service.
// There are none if the Service has a selector, or if the Endpoints have the label or the annotation that excludes them.
// The slices have the name of the Endpoints and only the fields from which a Service is resolved.
func MirrorEndpoints(service *corev1.Service, endpoints *corev1.Endpoints) []*discoveryv1.EndpointSlice {
	if len(service.Spec.Selector) > 0 || !isMirrored(endpoints) {
		return nil
	}
	var out []*discoveryv1.EndpointSlice
	for i := range endpoints.Subsets {
		subset := &endpoints.Subsets[i]
		ports := make([]discoveryv1.EndpointPort, 0, len(subset.Ports))
		for _, p := range subset.Ports {
			ports = append(ports, discoveryv1.EndpointPort{Name: new(p.Name), Port: new(p.Port)})
		}
		ready, notReady := mirroredAddresses(subset)
		byFamily := map[discoveryv1.AddressType][]discoveryv1.Endpoint{}
		for _, group := range []struct {
			addresses []corev1.EndpointAddress
			ready     bool
		}{{ready, true}, {notReady, false}} {
			for _, a := range group.addresses {
				if family, ok := familyOf(a.IP); ok {
					byFamily[family] = append(byFamily[family], discoveryv1.Endpoint{
						Addresses: []string{a.IP}, Conditions: discoveryv1.EndpointConditions{Ready: new(group.ready)}, TargetRef: a.TargetRef,
					})
				}
			}
		}
		for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
			if len(byFamily[family]) > 0 {
				out = append(out, &discoveryv1.EndpointSlice{
					ObjectMeta:  metav1.ObjectMeta{Namespace: endpoints.Namespace, Name: endpoints.Name, Labels: map[string]string{discoveryv1.LabelServiceName: service.Name}},
					AddressType: family, Ports: ports, Endpoints: byFamily[family],
				})
			}
		}
	}
	return out
}

func isMirrored(endpoints *corev1.Endpoints) bool {
	_, leader := endpoints.Annotations[leaderAnnotation]
	return !leader && endpoints.Labels[discoveryv1.LabelSkipMirror] != "true"
}

// mirroredAddresses returns the addresses of a subset that are mirrored, at most maxMirrored, ready ones first.
func mirroredAddresses(subset *corev1.EndpointSubset) (ready, notReady []corev1.EndpointAddress) {
	ready = subset.Addresses[:min(len(subset.Addresses), maxMirrored)]
	return ready, subset.NotReadyAddresses[:min(len(subset.NotReadyAddresses), maxMirrored-len(ready))]
}

func familyOf(address string) (discoveryv1.AddressType, bool) {
	ip, err := netip.ParseAddr(address)
	switch {
	case err != nil:
		return "", false
	case ip.Unmap().Is4():
		return discoveryv1.AddressTypeIPv4, true
	}
	return discoveryv1.AddressTypeIPv6, true
}

// TrimEndpoints reduces Endpoints in an informer to the fields that MirrorEndpoints reads. Endpoints that are never
// mirrored keep no addresses. Other Endpoints keep only the IP of each address.
func TrimEndpoints(e *corev1.Endpoints) {
	var annotations, kept map[string]string
	if _, ok := e.Annotations[leaderAnnotation]; ok {
		annotations = map[string]string{leaderAnnotation: ""} // the value changes with every renewal
	}
	if value, ok := e.Labels[discoveryv1.LabelSkipMirror]; ok {
		kept = map[string]string{discoveryv1.LabelSkipMirror: value}
	}
	e.Annotations, e.Labels, e.OwnerReferences = annotations, kept, nil
	if !isMirrored(e) {
		e.Subsets = nil
		return
	}
	subsets := make([]corev1.EndpointSubset, 0, len(e.Subsets))
	for i := range e.Subsets {
		ready, notReady := mirroredAddresses(&e.Subsets[i])
		subsets = append(subsets, corev1.EndpointSubset{
			Addresses: onlyIPs(ready), NotReadyAddresses: onlyIPs(notReady), Ports: slices.Clone(e.Subsets[i].Ports),
		})
	}
	e.Subsets = subsets
}

func onlyIPs(addresses []corev1.EndpointAddress) []corev1.EndpointAddress {
	out := make([]corev1.EndpointAddress, 0, len(addresses))
	for _, a := range addresses {
		out = append(out, corev1.EndpointAddress{IP: a.IP})
	}
	return out
}

// endpointsEvent enqueues the Service of changed Endpoints, so that its APIServices are resolved again.
func (c *Controller) endpointsEvent(before, after *corev1.Endpoints) {
	if before != nil && after != nil && equality.Semantic.DeepEqual(before.Subsets, after.Subsets) && isMirrored(before) == isMirrored(after) {
		return
	}
	for _, e := range []*corev1.Endpoints{before, after} {
		if e != nil {
			c.queue.Add(queueItem{service: types.NamespacedName{Namespace: e.Namespace, Name: e.Name}})
			return // both have the same name
		}
	}
}
