// Package node defines the kinds of the API group node.k8s.io, one per file.
package node

import (
	nodev1 "k8s.io/api/node/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: nodev1.SchemeGroupVersion, AddToScheme: nodev1.AddToScheme, Priority: 16200,
		Resources: []registry.Resource{
			runtimeClassResource(),
		},
	}
}
