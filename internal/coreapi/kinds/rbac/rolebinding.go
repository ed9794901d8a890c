package rbac

import (
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func roleBindingResource() registry.Resource {
	return registry.Resource{
		Name: "rolebindings", Singular: "rolebinding", WatchCache: true, AllowCreateOnUpdate: true, AllowUnconditionalUpdate: true,
		Object: &rbacv1.RoleBinding{}, List: &rbacv1.RoleBindingList{}, Guard: guardBinding,
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"roleRef: {kind: Role, name: a}\n" +
				"subjects: [{kind: User, name: u}, {kind: Group, name: g}, {kind: ServiceAccount, name: s}]",
		},
		Rules:    validate.OnUpdate(validateRoleBinding, validateRoleBindingUpdate),
		Defaults: defaults.Of(defaultRoleBinding),
		Columns:  roleBindingColumns,
	}
}

func roleBindingColumns() columns.Printer {
	return columns.Show(func(b *rbacv1.RoleBinding, now time.Time) []any {
		return bindingCells(b, b.RoleRef, b.Subjects, now)
	}, bindingColumns(rbacv1.RoleBinding{}.SwaggerDoc()["roleRef"])...)
}

func defaultRoleBinding(b *rbacv1.RoleBinding) { defaultSubjects(&b.RoleRef, b.Subjects) }

func validateRoleBinding(b *rbacv1.RoleBinding) field.ErrorList {
	return binding(&b.ObjectMeta, validate.Namespaced, b.RoleRef, b.Subjects, "Role", "ClusterRole")
}

func validateRoleBindingUpdate(b, old *rbacv1.RoleBinding) field.ErrorList {
	return append(validateRoleBinding(b), sameRole(b.RoleRef, old.RoleRef)...)
}

func bindingColumns(roleRef string) []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		columns.Name(), columns.Text("Role", roleRef), columns.Age(),
		columns.Wide(columns.Text("Users", "The users that the role is given to")),
		columns.Wide(columns.Text("Groups", "The groups that the role is given to")),
		columns.Wide(columns.Text("ServiceAccounts", "The service accounts that the role is given to, as namespace/name")),
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
		binding.GetName(), role.Kind + "/" + role.Name, columns.AgeOf(binding, now),
		strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", "),
	}
}

func defaultSubjects(role *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	defaults.Set(&role.APIGroup, rbacv1.GroupName)
	for i := range subjects {
		switch subjects[i].Kind {
		case rbacv1.UserKind, rbacv1.GroupKind:
			defaults.Set(&subjects[i].APIGroup, rbacv1.GroupName)
		}
	}
}
