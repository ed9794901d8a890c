package gateway

import (
	aggregatorlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/routes/v1alpha1"
)

// statusOwner decides which objects have a status that this gateway writes. Other gateways, and a front door that is
// the API server, decide about the same objects, with the opposite result.
type statusOwner struct {
	gateway     adoption.Service
	apiServices aggregatorlisters.APIServiceLister // all APIServices of the API server, unmodified
}

// ownsAPIService reports whether the gateway writes its conditions of an adopted APIService. It does, unless the
// APIService points to another gateway.
func (s statusOwner) ownsAPIService(name string) bool {
	o, err := s.apiServices.Get(name)
	return err != nil || !s.gateway.FrontedElsewhere(o)
}

// ownsAPIRoute reports whether the gateway writes the status of an APIRoute. If the APIService is adopted, the
// gateway that it points to does. Otherwise the APIRoute has no effect in any gateway, and all gateways write the
// same status, unless the API server is a front door, which serves APIRoutes itself.
func (s statusOwner) ownsAPIRoute(name string) bool {
	if o, err := s.apiServices.Get(name); err == nil {
		if _, err := s.gateway.OriginalOf(o); err == nil {
			return s.gateway.Fronts(o)
		}
	}
	kind, err := s.apiServices.Get(v1alpha1.GroupVersion.Version + "." + v1alpha1.GroupVersion.Group)
	return err != nil || kind.Labels[automanagedLabel] != builtIn
}

// A kube-apiserver labels the APIService of a CustomResourceDefinition differently.
const (
	automanagedLabel = "kube-aggregator.kubernetes.io/automanaged"
	builtIn          = "onstart"
)
