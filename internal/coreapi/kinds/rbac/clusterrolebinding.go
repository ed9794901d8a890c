package rbac

import (
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func clusterRoleBindingResource() registry.Resource {
	return registry.Resource{
		Name: "clusterrolebindings", Singular: "clusterrolebinding", ClusterScoped: true, WatchCache: true, AllowCreateOnUpdate: true, AllowUnconditionalUpdate: true,
		Object: &rbacv1.ClusterRoleBinding{}, List: &rbacv1.ClusterRoleBindingList{}, Guard: guardBinding,
		Samples: []string{
			"metadata: {name: a}\n" +
				"roleRef: {kind: ClusterRole, name: a}",
		},
		Rules:    validate.OnUpdate(validateClusterRoleBinding, validateClusterRoleBindingUpdate),
		Defaults: defaults.Of(defaultClusterRoleBinding),
		Columns:  clusterRoleBindingColumns,
	}
}

func clusterRoleBindingColumns() columns.Printer {
	return columns.Show(func(b *rbacv1.ClusterRoleBinding, now time.Time) []any {
		return bindingCells(b, b.RoleRef, b.Subjects, now)
	}, bindingColumns(rbacv1.ClusterRoleBinding{}.SwaggerDoc()["roleRef"])...)
}

func defaultClusterRoleBinding(b *rbacv1.ClusterRoleBinding) { defaultSubjects(&b.RoleRef, b.Subjects) }

func validateClusterRoleBinding(b *rbacv1.ClusterRoleBinding) field.ErrorList {
	return binding(&b.ObjectMeta, validate.ClusterScoped, b.RoleRef, b.Subjects, "ClusterRole")
}

func validateClusterRoleBindingUpdate(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
	return append(validateClusterRoleBinding(b), sameRole(b.RoleRef, old.RoleRef)...)
}
