// Package batch has the kinds of the group of batch: a file for each, which says everything about it.
package batch

import (
	batchv1 "k8s.io/api/batch/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{Version: batchv1.SchemeGroupVersion, AddToScheme: batchv1.AddToScheme, Resources: []registry.Resource{jobResource(), cronJobResource()}}
}
