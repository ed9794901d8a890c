// Package scheduling defines the kinds of the API group scheduling.k8s.io, one per file.
package scheduling

import (
	schedulingv1 "k8s.io/api/scheduling/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: schedulingv1.SchemeGroupVersion, AddToScheme: schedulingv1.AddToScheme, Priority: 16300,
		Resources: []registry.Resource{
			priorityClassResource(),
		},
	}
}
