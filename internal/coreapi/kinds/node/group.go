// Package node has the kinds of the group of node: a file for each, which says everything about it.
package node

import (
	nodev1 "k8s.io/api/node/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{Version: nodev1.SchemeGroupVersion, AddToScheme: nodev1.AddToScheme, Resources: []registry.Resource{runtimeClassResource()}}
}
