package columns

import (
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func RoleBindingColumns() Printer {
	return show(func(b *rbacv1.RoleBinding, now time.Time) []any {
		return bindingCells(b, b.RoleRef, b.Subjects, now)
	}, bindingColumns(rbacv1.RoleBinding{}.SwaggerDoc()["roleRef"])...)
}

func ClusterRoleBindingColumns() Printer {
	return show(func(b *rbacv1.ClusterRoleBinding, now time.Time) []any {
		return bindingCells(b, b.RoleRef, b.Subjects, now)
	}, bindingColumns(rbacv1.ClusterRoleBinding{}.SwaggerDoc()["roleRef"])...)
}

func bindingColumns(roleRef string) []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		name(), text("Role", roleRef), age(),
		wide(text("Users", "The users that the role is given to")),
		wide(text("Groups", "The groups that the role is given to")),
		wide(text("ServiceAccounts", "The service accounts that the role is given to, as namespace/name")),
	}
}

func bindingCells(binding metav1.Object, role rbacv1.RoleRef, subjects []rbacv1.Subject, now time.Time) []any {
	var users, groups, accounts []string
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return []any{
		binding.GetName(), role.Kind + "/" + role.Name, ageOf(binding, now),
		strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", "),
	}
}
