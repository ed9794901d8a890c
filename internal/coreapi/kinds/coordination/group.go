// Package coordination defines the kinds of the API group coordination.k8s.io, one per file.
package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: coordinationv1.SchemeGroupVersion, AddToScheme: coordinationv1.AddToScheme, Priority: 17300,
		Resources: []registry.Resource{
			leaseResource(),
		},
	}
}
