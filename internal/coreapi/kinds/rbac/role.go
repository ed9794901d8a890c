package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func roleResource() registry.Resource {
	return registry.Resource{
		Name: "roles", Singular: "role", WatchCache: true, AllowCreateOnUpdate: true, AllowUnconditionalUpdate: true,
		Object: &rbacv1.Role{}, List: &rbacv1.RoleList{}, Guard: guardRole,
		Samples: []string{
			"metadata: {name: 'system:a', namespace: ns}\n" +
				"rules: [{verbs: [get], apiGroups: [''], resources: [pods]}]",
		},
		Rules: validate.SameOnUpdate(validateRole),
	}
}

func validateRole(r *rbacv1.Role) field.ErrorList {
	return append(validate.ObjectMeta(&r.ObjectMeta, validate.Namespaced, pathSegmentName), policyRules(r.Rules, validate.Namespaced)...)
}
