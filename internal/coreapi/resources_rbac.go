package coreapi

import rbacv1 "k8s.io/api/rbac/v1"

func rbacResources() []resource {
	return []resource{
		{
			name: "clusterroles", singular: "clusterrole", clusterScoped: true, cached: true, createOnUpdate: true, blindUpdate: true,
			object: &rbacv1.ClusterRole{}, list: &rbacv1.ClusterRoleList{}, guard: guardRole,
		},
		{
			name: "clusterrolebindings", singular: "clusterrolebinding", clusterScoped: true, cached: true, createOnUpdate: true, blindUpdate: true,
			object: &rbacv1.ClusterRoleBinding{}, list: &rbacv1.ClusterRoleBindingList{}, guard: guardBinding,
		},
		{
			name: "roles", singular: "role", cached: true, createOnUpdate: true, blindUpdate: true,
			object: &rbacv1.Role{}, list: &rbacv1.RoleList{}, guard: guardRole,
		},
		{
			name: "rolebindings", singular: "rolebinding", cached: true, createOnUpdate: true, blindUpdate: true,
			object: &rbacv1.RoleBinding{}, list: &rbacv1.RoleBindingList{}, guard: guardBinding,
		},
	}
}
