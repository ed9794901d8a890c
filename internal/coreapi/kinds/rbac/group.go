// Package rbac defines the kinds of the API group rbac.authorization.k8s.io, one per file.
package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: rbacv1.SchemeGroupVersion, AddToScheme: rbacv1.AddToScheme, Priority: 17500,
		Required: "authorization reads its roles and bindings",
		Resources: []registry.Resource{
			clusterRoleResource(), clusterRoleBindingResource(), roleResource(), roleBindingResource(),
		},
	}
}
