// Package flowcontrol defines the kinds of the API group flowcontrol.apiserver.k8s.io, one per file.
package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: flowcontrolv1.SchemeGroupVersion, AddToScheme: flowcontrolv1.AddToScheme, Priority: 17100,
		Resources: []registry.Resource{
			flowSchemaResource(), priorityLevelConfigurationResource(),
		},
	}
}
