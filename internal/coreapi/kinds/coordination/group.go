// Package coordination has the kinds of the group of coordination: a file for each, which says everything about it.
package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{Version: coordinationv1.SchemeGroupVersion, AddToScheme: coordinationv1.AddToScheme, Resources: []registry.Resource{leaseResource()}}
}
