// Package discovery defines the kinds of the API group discovery.k8s.io, one per file.
package discovery

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: discoveryv1.SchemeGroupVersion, AddToScheme: discoveryv1.AddToScheme, Priority: 17200,
		Required: "extension servers are found by their EndpointSlices",
		Resources: []registry.Resource{
			endpointSliceResource(),
		},
	}
}
