// Package apps has the kinds of the group of apps: a file for each, which says everything about it.
package apps

import (
	appsv1 "k8s.io/api/apps/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{Version: appsv1.SchemeGroupVersion, AddToScheme: appsv1.AddToScheme, Resources: []registry.Resource{deploymentResource(), replicaSetResource(), statefulSetResource(), daemonSetResource(), controllerRevisionResource()}}
}
