package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func clusterRoleResource() registry.Resource {
	return registry.Resource{
		Name: "clusterroles", Singular: "clusterrole", ClusterScoped: true, WatchCache: true, AllowCreateOnUpdate: true, AllowUnconditionalUpdate: true,
		Object: &rbacv1.ClusterRole{}, List: &rbacv1.ClusterRoleList{}, Guard: guardRole,
		Samples: []string{
			"metadata: {name: 'system:a'}\n" +
				"rules: [{verbs: [get], nonResourceURLs: [/metrics]}]",
		},
		Rules: validate.SameOnUpdate(validateClusterRole),
	}
}

func validateClusterRole(r *rbacv1.ClusterRole) field.ErrorList {
	errs := validate.ObjectMeta(&r.ObjectMeta, validate.ClusterScoped, pathSegmentName)
	errs = append(errs, policyRules(r.Rules, validate.ClusterScoped)...)
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
