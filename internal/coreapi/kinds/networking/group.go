// Package networking defines the kinds of the API group networking.k8s.io, one per file.
package networking

import (
	networkingv1 "k8s.io/api/networking/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: networkingv1.SchemeGroupVersion, AddToScheme: networkingv1.AddToScheme, Priority: 16600,
		Required: "Services get their addresses by its ServiceCIDRs and IPAddresses; its other resources can be turned off by name",
		Resources: []registry.Resource{
			ingressResource(), ingressClassResource(), networkPolicyResource(), ipAddressResource(),
			serviceCIDRResource(),
		},
	}
}
