// Package flowcontrol has the kinds of the group of flowcontrol: a file for each, which says everything about it.
package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{Version: flowcontrolv1.SchemeGroupVersion, AddToScheme: flowcontrolv1.AddToScheme, Resources: []registry.Resource{flowSchemaResource(), priorityLevelConfigurationResource()}}
}
