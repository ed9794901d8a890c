// Package batch defines the kinds of the API group batch, one per file.
package batch

import (
	batchv1 "k8s.io/api/batch/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: batchv1.SchemeGroupVersion, AddToScheme: batchv1.AddToScheme, Priority: 16800,
		Resources: []registry.Resource{
			jobResource(), cronJobResource(),
		},
	}
}
