// Package clusters defines the kinds of the API group clusters.portico.dev, one per file.
package clusters

import (
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/fleet/v1alpha1"
)

func Group() registry.Group {
	return registry.Group{
		Version: v1alpha1.GroupVersion, AddToScheme: v1alpha1.AddToScheme, Priority: 14900, OptIn: true,
		Resources: []registry.Resource{
			clusterResource(),
		},
	}
}
