// Package scheduling has the kinds of the group of scheduling: a file for each, which says everything about it.
package scheduling

import (
	schedulingv1 "k8s.io/api/scheduling/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{Version: schedulingv1.SchemeGroupVersion, AddToScheme: schedulingv1.AddToScheme, Resources: []registry.Resource{priorityClassResource()}}
}
