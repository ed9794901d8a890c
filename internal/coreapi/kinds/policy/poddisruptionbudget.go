package policy

import (
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func podDisruptionBudgetResource() registry.Resource {
	return registry.Resource{
		Name: "poddisruptionbudgets", Singular: "poddisruptionbudget", ShortNames: []string{"pdb"},
		Object: &policyv1.PodDisruptionBudget{}, List: &policyv1.PodDisruptionBudgetList{}, WatchCache: true, Generations: true,
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {minAvailable: 1}",
		},
		Rules:   validate.WithStatus(validatePodDisruptionBudget, validatePodDisruptionBudgetUpdate, validatePodDisruptionBudgetStatus),
		Columns: podDisruptionBudgetColumns,
		Spec:    registry.SpecOf(func(o *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudgetSpec { return &o.Spec }),
		Status:  registry.StatusOf(func(o *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudgetStatus { return &o.Status }), StatusChangesMetadata: true,
	}
}

func podDisruptionBudgetColumns() columns.Printer {
	return columns.Show(func(b *policyv1.PodDisruptionBudget, now time.Time) []any {
		return []any{
			b.Name, orNotGiven(b.Spec.MinAvailable), orNotGiven(b.Spec.MaxUnavailable), int64(b.Status.DisruptionsAllowed), columns.AgeOf(b, now),
		}
	}, columns.Name(), columns.Text("Min Available", "The minimum number of pods that must be available."),
		columns.Text("Max Unavailable", "The maximum number of pods that may be unavailable."),
		columns.Number("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time."), columns.Age())
}

func orNotGiven(amount *intstr.IntOrString) string {
	if amount == nil {
		return "N/A"
	}
	return amount.String()
}

// validatePodDisruptionBudget leaves the metadata to k8s.io/apiserver: as in kube-apiserver, every URL path segment is a valid
// name.
func validatePodDisruptionBudget(b *policyv1.PodDisruptionBudget) field.ErrorList {
	return disruptionBudgetSpec(&b.Spec, false)
}

// validatePodDisruptionBudgetUpdate tolerates invalid label values in the selector if the stored object has some.
func validatePodDisruptionBudgetUpdate(b, old *policyv1.PodDisruptionBudget) field.ErrorList {
	return disruptionBudgetSpec(&b.Spec, metav1validation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector))
}

func disruptionBudgetSpec(s *policyv1.PodDisruptionBudgetSpec, lenient bool) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if s.MinAvailable != nil && s.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(path, *s, "minAvailable and maxUnavailable cannot be both set"))
	}
	least, most := path.Child("minAvailable"), path.Child("maxUnavailable")
	errs = append(errs, validate.IntOrPercent(s.MinAvailable, least)...)
	errs = append(errs, validate.AtMost100Percent(s.MinAvailable, least)...)
	errs = append(errs, validate.IntOrPercent(s.MaxUnavailable, most)...)
	errs = append(errs, validate.AtMost100Percent(s.MaxUnavailable, most)...)
	errs = append(errs, metav1validation.ValidateLabelSelector(s.Selector,
		metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: lenient}, path.Child("selector"))...)
	if s.UnhealthyPodEvictionPolicy != nil {
		errs = append(errs, validate.OneOf(*s.UnhealthyPodEvictionPolicy, path.Child("unhealthyPodEvictionPolicy"), policyv1.AlwaysAllow, policyv1.IfHealthyBudget)...)
	}
	return errs
}

func validatePodDisruptionBudgetStatus(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	s, path := &b.Status, field.NewPath("status")
	errs := metav1validation.ValidateConditions(s.Conditions, path.Child("conditions"))
	return append(errs, validate.NonNegative(path, validate.NamedNumbers{
		"disruptionsAllowed": int64(s.DisruptionsAllowed), "currentHealthy": int64(s.CurrentHealthy),
		"desiredHealthy": int64(s.DesiredHealthy), "expectedPods": int64(s.ExpectedPods),
	})...)
}
