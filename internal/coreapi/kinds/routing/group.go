// Package routing defines the kinds of the API group routing.portico.dev, one per file.
package routing

import (
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/routes/v1alpha1"
)

func Group() registry.Group {
	return registry.Group{
		Version: v1alpha1.GroupVersion, AddToScheme: v1alpha1.AddToScheme, Priority: 15000,
		Required: "without it the APIRoutes that are stored would be without effect",
		Resources: []registry.Resource{
			apiRouteResource(),
		},
	}
}
