// Package apps defines the kinds of the API group apps, one per file.
package apps

import (
	appsv1 "k8s.io/api/apps/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: appsv1.SchemeGroupVersion, AddToScheme: appsv1.AddToScheme, Priority: 17000,
		Resources: []registry.Resource{
			deploymentResource(), replicaSetResource(), statefulSetResource(), daemonSetResource(),
			controllerRevisionResource(),
		},
	}
}
