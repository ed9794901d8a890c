package kinds_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestRBACRegistrationTables(t *testing.T) {
	const bound = "subjects: [{kind: User, name: u}, {kind: User, name: v}, {kind: Group, name: g}, {kind: ServiceAccount, namespace: ns, name: s}]"
	kindtest.Table[rbacv1.RoleBinding](t,
		"metadata: {name: a}\nroleRef: {kind: Role, name: r}\n"+bound, "metadata: {name: nobody}\nroleRef: {kind: ClusterRole, name: view}")
	kindtest.Table[rbacv1.ClusterRoleBinding](t,
		"metadata: {name: a}\nroleRef: {kind: ClusterRole, name: r}\n"+bound)
}
