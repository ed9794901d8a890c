// Package flowcontrol has the kinds of flowcontrol.apiserver.k8s.io, a file for each.
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
