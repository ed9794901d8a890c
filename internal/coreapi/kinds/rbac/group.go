// Package rbac has the kinds of the group of rbac: a file for each, which says everything about it.
package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{Version: rbacv1.SchemeGroupVersion, AddToScheme: rbacv1.AddToScheme, Resources: []registry.Resource{clusterRoleResource(), clusterRoleBindingResource(), roleResource(), roleBindingResource()}}
}
