// Package networking has the kinds of the group of networking: a file for each, which says everything about it.
package networking

import (
	networkingv1 "k8s.io/api/networking/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{Version: networkingv1.SchemeGroupVersion, AddToScheme: networkingv1.AddToScheme, Resources: []registry.Resource{ingressResource(), ingressClassResource(), networkPolicyResource(), ipAddressResource(), serviceCIDRResource()}}
}
