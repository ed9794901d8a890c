package validate

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidatePodDisruptionBudget leaves the metadata to the library: kube-apiserver takes every name that fits into a URL.
func ValidatePodDisruptionBudget(b *policyv1.PodDisruptionBudget) field.ErrorList {
	return disruptionBudgetSpec(&b.Spec, false)
}

// ValidatePodDisruptionBudgetUpdate lets a selector with values that are none stay: it was accepted before.
func ValidatePodDisruptionBudgetUpdate(b, old *policyv1.PodDisruptionBudget) field.ErrorList {
	return disruptionBudgetSpec(&b.Spec, metav1validation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector))
}

func disruptionBudgetSpec(s *policyv1.PodDisruptionBudgetSpec, lenient bool) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if s.MinAvailable != nil && s.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(path, *s, "minAvailable and maxUnavailable cannot be both set"))
	}
	least, most := path.Child("minAvailable"), path.Child("maxUnavailable")
	errs = append(errs, share(s.MinAvailable, least)...)
	errs = append(errs, notAboveAll(s.MinAvailable, least)...)
	errs = append(errs, share(s.MaxUnavailable, most)...)
	errs = append(errs, notAboveAll(s.MaxUnavailable, most)...)
	errs = append(errs, metav1validation.ValidateLabelSelector(s.Selector,
		metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: lenient}, path.Child("selector"))...)
	if s.UnhealthyPodEvictionPolicy != nil {
		errs = append(errs, oneOf(*s.UnhealthyPodEvictionPolicy, path.Child("unhealthyPodEvictionPolicy"), policyv1.AlwaysAllow, policyv1.IfHealthyBudget)...)
	}
	return errs
}

func ValidatePodDisruptionBudgetStatus(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	s, path := &b.Status, field.NewPath("status")
	errs := metav1validation.ValidateConditions(s.Conditions, path.Child("conditions"))
	return append(errs, naturals(path, fieldsOf{
		"disruptionsAllowed": int64(s.DisruptionsAllowed), "currentHealthy": int64(s.CurrentHealthy),
		"desiredHealthy": int64(s.DesiredHealthy), "expectedPods": int64(s.ExpectedPods),
	})...)
}
