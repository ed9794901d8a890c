// Package scheduling has the kinds of scheduling.k8s.io, a file for each.
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
