package validate

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func ValidateRole(r *rbacv1.Role) field.ErrorList {
	return append(objectMeta(&r.ObjectMeta, namespaced, pathSegmentName), policyRules(r.Rules, namespaced)...)
}

func ValidateClusterRole(r *rbacv1.ClusterRole) field.ErrorList {
	errs := objectMeta(&r.ObjectMeta, clusterScoped, pathSegmentName)
	errs = append(errs, policyRules(r.Rules, clusterScoped)...)
	if r.AggregationRule == nil {
		return errs
	}
	path := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(r.AggregationRule.ClusterRoleSelectors) == 0 {
		return append(errs, field.Required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	for i := range r.AggregationRule.ClusterRoleSelectors {
		selector := &r.AggregationRule.ClusterRoleSelectors[i]
		errs = append(errs, metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path.Index(i))...)
		if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			errs = append(errs, field.Invalid(path.Index(i), selector, "invalid label selector."))
		}
	}
	return errs
}

func policyRules(rules []rbacv1.PolicyRule, inNamespace bool) field.ErrorList {
	var errs field.ErrorList
	for i := range rules {
		errs = append(errs, policyRule(&rules[i], inNamespace, field.NewPath("rules").Index(i))...)
	}
	return errs
}

// policyRule refuses rules that would grant nothing, or that say more than a rule can mean: their author believes to
// have granted something else.
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

func ValidateRoleBinding(b *rbacv1.RoleBinding) field.ErrorList {
	return binding(&b.ObjectMeta, namespaced, b.RoleRef, b.Subjects, "Role", "ClusterRole")
}

func ValidateClusterRoleBinding(b *rbacv1.ClusterRoleBinding) field.ErrorList {
	return binding(&b.ObjectMeta, clusterScoped, b.RoleRef, b.Subjects, "ClusterRole")
}

func ValidateRoleBindingUpdate(b, old *rbacv1.RoleBinding) field.ErrorList {
	return append(ValidateRoleBinding(b), sameRole(b.RoleRef, old.RoleRef)...)
}

func ValidateClusterRoleBindingUpdate(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
	return append(ValidateClusterRoleBinding(b), sameRole(b.RoleRef, old.RoleRef)...)
}

// sameRole keeps a binding's role: whoever may edit the subjects of a binding must not get to choose the role with it.
func sameRole(ref, old rbacv1.RoleRef) field.ErrorList {
	if ref == old {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("roleRef"), ref, "cannot change roleRef")}
}

func binding(m *metav1.ObjectMeta, scope bool, ref rbacv1.RoleRef, subjects []rbacv1.Subject, kinds ...string) field.ErrorList {
	errs := objectMeta(m, scope, pathSegmentName)
	path := field.NewPath("roleRef")
	errs = append(errs, oneOf(ref.APIGroup, path.Child("apiGroup"), rbacv1.GroupName)...)
	errs = append(errs, oneOf(ref.Kind, path.Child("kind"), kinds...)...)
	if ref.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else {
		errs = append(errs, invalid(path.Child("name"), ref.Name, pathSegmentName(ref.Name, false))...)
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
			errs = append(errs, invalid(path.Child("name"), s.Name, validation.ValidateServiceAccountName(s.Name, false))...)
		}
		errs = append(errs, oneOf(s.APIGroup, path.Child("apiGroup"), "")...)
		if !inNamespace && s.Namespace == "" {
			errs = append(errs, field.Required(path.Child("namespace"), ""))
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		errs = append(errs, oneOf(s.APIGroup, path.Child("apiGroup"), rbacv1.GroupName)...)
	default:
		errs = append(errs, oneOf(s.Kind, path.Child("kind"), rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind)...)
	}
	return errs
}
