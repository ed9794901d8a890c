// Package node has the kinds of node.k8s.io, a file for each.
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
