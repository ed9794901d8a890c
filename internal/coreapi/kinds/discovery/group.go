// Package discovery has the kinds of the group of discovery: a file for each, which says everything about it.
package discovery

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{Version: discoveryv1.SchemeGroupVersion, AddToScheme: discoveryv1.AddToScheme, Resources: []registry.Resource{endpointSliceResource()}}
}
