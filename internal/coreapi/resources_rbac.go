package coreapi

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/validate"
)

func clusterRoleResource() resource {
	return resource{
		name: "clusterroles", singular: "clusterrole", clusterScoped: true, cached: true, createOnUpdate: true, blindUpdate: true,
		object: &rbacv1.ClusterRole{}, list: &rbacv1.ClusterRoleList{}, guard: guardRole,
		rules: validate.Same(validate.ValidateClusterRole),
	}
}

func clusterRoleBindingResource() resource {
	return resource{
		name: "clusterrolebindings", singular: "clusterrolebinding", clusterScoped: true, cached: true, createOnUpdate: true, blindUpdate: true,
		object: &rbacv1.ClusterRoleBinding{}, list: &rbacv1.ClusterRoleBindingList{}, guard: guardBinding,
		rules:    validate.Changing(validate.ValidateClusterRoleBinding, validate.ValidateClusterRoleBindingUpdate),
		defaults: defaults.Of(defaults.DefaultClusterRoleBinding),
		columns:  columns.ClusterRoleBindingColumns,
	}
}

func roleResource() resource {
	return resource{
		name: "roles", singular: "role", cached: true, createOnUpdate: true, blindUpdate: true,
		object: &rbacv1.Role{}, list: &rbacv1.RoleList{}, guard: guardRole,
		rules: validate.Same(validate.ValidateRole),
	}
}

func roleBindingResource() resource {
	return resource{
		name: "rolebindings", singular: "rolebinding", cached: true, createOnUpdate: true, blindUpdate: true,
		object: &rbacv1.RoleBinding{}, list: &rbacv1.RoleBindingList{}, guard: guardBinding,
		rules:    validate.Changing(validate.ValidateRoleBinding, validate.ValidateRoleBindingUpdate),
		defaults: defaults.Of(defaults.DefaultRoleBinding),
		columns:  columns.RoleBindingColumns,
	}
}
