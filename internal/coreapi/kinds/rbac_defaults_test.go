package kinds_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestRBACDefaults(t *testing.T) {
	kindtest.Defaults(t, []kindtest.Default{
		{"who a role is given to", &rbacv1.RoleBinding{}, "roleRef: {kind: Role, name: r}\nsubjects: [{kind: User, name: u}, {kind: Group, name: g}, {kind: ServiceAccount, name: s}]",
			"metadata: {}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}\nsubjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: u}, " +
				"{apiGroup: rbac.authorization.k8s.io, kind: Group, name: g}, {kind: ServiceAccount, name: s}]"},
		{"a cluster role given to nobody yet", &rbacv1.ClusterRoleBinding{}, "roleRef: {kind: ClusterRole, name: r}",
			"metadata: {}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}"},
	})
}
