package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/validate"
)

func policyRules(rules []rbacv1.PolicyRule, inNamespace bool) field.ErrorList {
	var errs field.ErrorList
	for i := range rules {
		errs = append(errs, policyRule(&rules[i], inNamespace, field.NewPath("rules").Index(i))...)
	}
	return errs
}

// policyRule refuses rules that grant nothing, or contain more than a rule can express: such a rule does not grant what its
// author intended.
func policyRule(r *rbacv1.PolicyRule, inNamespace bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Verbs) == 0 {
		errs = append(errs, field.Required(path.Child("verbs"), ""))
	}
	if urls := path.Child("nonResourceURLs"); len(r.NonResourceURLs) > 0 {
		if inNamespace {
			errs = append(errs, field.Invalid(urls, r.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
		}
		if len(r.APIGroups) > 0 || len(r.Resources) > 0 || len(r.ResourceNames) > 0 {
			errs = append(errs, field.Invalid(urls, r.NonResourceURLs,
				"rules cannot apply to both regular resources and non-resource URLs"))
		}
		return errs
	}
	if len(r.APIGroups) == 0 {
		errs = append(errs, field.Required(path.Child("apiGroups"), "resource rules must supply at least one api group"))
	}
	if len(r.Resources) == 0 {
		errs = append(errs, field.Required(path.Child("resources"), "resource rules must supply at least one resource"))
	}
	return errs
}

// sameRole makes the role of a binding immutable: permission to edit the subjects must not include the choice of the role.
func sameRole(ref, old rbacv1.RoleRef) field.ErrorList {
	if ref == old {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("roleRef"), ref, "cannot change roleRef")}
}

func binding(m *metav1.ObjectMeta, scope bool, ref rbacv1.RoleRef, subjects []rbacv1.Subject, kinds ...string) field.ErrorList {
	errs := validate.ObjectMeta(m, scope, pathSegmentName)
	path := field.NewPath("roleRef")
	errs = append(errs, validate.OneOf(ref.APIGroup, path.Child("apiGroup"), rbacv1.GroupName)...)
	errs = append(errs, validate.OneOf(ref.Kind, path.Child("kind"), kinds...)...)
	if ref.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else {
		errs = append(errs, validate.Invalid(path.Child("name"), ref.Name, pathSegmentName(ref.Name, false))...)
	}
	for i := range subjects {
		errs = append(errs, subject(&subjects[i], scope, field.NewPath("subjects").Index(i))...)
	}
	return errs
}

func subject(s *rbacv1.Subject, inNamespace bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Name != "" {
			errs = append(errs, validate.Invalid(path.Child("name"), s.Name, validation.ValidateServiceAccountName(s.Name, false))...)
		}
		errs = append(errs, validate.OneOf(s.APIGroup, path.Child("apiGroup"), "")...)
		if !inNamespace && s.Namespace == "" {
			errs = append(errs, field.Required(path.Child("namespace"), ""))
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		errs = append(errs, validate.OneOf(s.APIGroup, path.Child("apiGroup"), rbacv1.GroupName)...)
	default:
		errs = append(errs, validate.OneOf(s.Kind, path.Child("kind"), rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind)...)
	}
	return errs
}

// pathSegmentName is for kinds with names that only have to be valid URL path segments, such as system:masters.
func pathSegmentName(name string, _ bool) []string { return content.IsPathSegmentName(name) }
