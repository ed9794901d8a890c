package coreapi

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rbackinds "portico.dev/internal/coreapi/kinds/rbac"
	"portico.dev/internal/coreapi/registry"
)

// AggregateFunc returns what each ClusterRole gives, by name, aggregated ones included.
type AggregateFunc func([]*rbacv1.ClusterRole) map[string][]rbacv1.PolicyRule

// storedRoleRules reads the role behind a reference as it is now. The stored rules of an aggregated role mean nothing:
// what it gives is gathered from the roles that it selects, as they are now too.
func storedRoleRules(roles, clusterRoles *registry.REST, aggregate AggregateFunc) func(context.Context, string, rbacv1.RoleRef) ([]rbacv1.PolicyRule, error) {
	return func(ctx context.Context, namespace string, ref rbacv1.RoleRef) ([]rbacv1.PolicyRule, error) {
		from, resource := clusterRoles, "clusterroles"
		if ref.Kind == "Role" {
			from, resource = roles, "roles"
		} else {
			namespace = ""
		}
		obj, err := from.Get(registry.ReadContext(ctx, rbacv1.GroupName, resource, namespace, ref.Name), ref.Name, &metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		_, rules, aggregates := rbackinds.RoleContent(obj)
		if !aggregates {
			return rules, nil
		}
		if aggregate == nil {
			return rbackinds.Everything, nil
		}
		list, err := clusterRoles.List(registry.ReadContext(ctx, rbacv1.GroupName, resource, "", ""), &metainternalversion.ListOptions{})
		if err != nil {
			return nil, err
		}
		all := list.(*rbacv1.ClusterRoleList)
		pointers := make([]*rbacv1.ClusterRole, len(all.Items))
		for i := range all.Items {
			pointers[i] = &all.Items[i]
		}
		return aggregate(pointers)[ref.Name], nil
	}
}
