package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/validate"
)

const (
	maxPolicyRules      = 20
	maxExitCodes        = 255
	maxConditions       = 20
	maxSucceededIndexes = 64 << 10
)

func failurePolicy(s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if s.PodFailurePolicy == nil {
		return nil
	}
	var errs field.ErrorList
	rules := s.PodFailurePolicy.Rules
	if len(rules) > maxPolicyRules {
		errs = append(errs, field.TooMany(path.Child("rules"), len(rules), maxPolicyRules))
	}
	for i := range rules {
		errs = append(errs, failureRule(s, &rules[i], path.Child("rules").Index(i))...)
	}
	return errs
}

func failureRule(s *batchv1.JobSpec, r *batchv1.PodFailurePolicyRule, path *field.Path) field.ErrorList {
	actions := []batchv1.PodFailurePolicyAction{
		batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
		batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore,
	}
	errs := choice(r.Action, path.Child("action"), actions...)
	if r.Action == batchv1.PodFailurePolicyActionFailIndex && s.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Invalid(path.Child("action"), r.Action, "requires the backoffLimitPerIndex to be set"))
	}
	if r.OnExitCodes != nil {
		errs = append(errs, exitCodes(&s.Template.Spec, r.OnExitCodes, path.Child("onExitCodes"))...)
	}
	if len(r.OnPodConditions) > 0 {
		errs = append(errs, podConditions(r.OnPodConditions, path.Child("onPodConditions"))...)
	}
	switch codes, conditions := r.OnExitCodes != nil, len(r.OnPodConditions) > 0; {
	case codes && conditions:
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported"))
	case !codes && !conditions:
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required"))
	}
	return errs
}

// choice requires one of the allowed values, and lists them if value is empty.
func choice[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, fmt.Sprintf("valid values: %q", allowed))}
	}
	return validate.OneOf(value, path, allowed...)
}

func exitCodes(pod *corev1.PodSpec, c *batchv1.PodFailurePolicyOnExitCodesRequirement, path *field.Path) field.ErrorList {
	errs := choice(c.Operator, path.Child("operator"), batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	if c.ContainerName != nil && !validate.HasContainer(&corev1.PodSpec{Containers: pod.Containers, InitContainers: pod.InitContainers}, *c.ContainerName) {
		errs = append(errs, field.Invalid(path.Child("containerName"), *c.ContainerName,
			"must be one of the container or initContainer names in the pod template"))
	}
	values := path.Child("values")
	switch {
	case len(c.Values) == 0:
		errs = append(errs, field.Invalid(values, c.Values, "at least one value is required"))
	case len(c.Values) > maxExitCodes:
		errs = append(errs, field.TooMany(values, len(c.Values), maxExitCodes))
	}
	seen := sets.New[int32]()
	for i, code := range c.Values {
		if c.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && code == 0 {
			errs = append(errs, field.Invalid(values.Index(i), code, "must not be 0 for the In operator"))
		}
		if seen.Has(code) {
			errs = append(errs, field.Duplicate(values.Index(i), code))
		}
		seen.Insert(code)
	}
	if !slices.IsSorted(c.Values) {
		errs = append(errs, field.Invalid(values, c.Values, "must be ordered"))
	}
	return errs
}

func podConditions(patterns []batchv1.PodFailurePolicyOnPodConditionsPattern, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(patterns) > maxConditions {
		errs = append(errs, field.TooMany(path, len(patterns), maxConditions))
	}
	for i, p := range patterns {
		errs = append(errs, validate.Qualified(string(p.Type), path.Index(i).Child("type"))...)
		errs = append(errs, choice(p.Status, path.Index(i).Child("status"), corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)...)
	}
	return errs
}

// replacementPolicy requires Failed if there is a podFailurePolicy, because a terminating pod has no exit code yet.
func replacementPolicy(s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	switch {
	case s.PodReplacementPolicy == nil:
		return nil
	case s.PodFailurePolicy != nil:
		return validate.OneOf(*s.PodReplacementPolicy, path, batchv1.Failed)
	}
	return validate.OneOf(*s.PodReplacementPolicy, path, batchv1.Failed, batchv1.TerminatingOrFailed)
}

func successPolicy(s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	switch {
	case s.SuccessPolicy == nil:
		return nil
	case !indexed(s):
		return field.ErrorList{field.Invalid(path, *s.SuccessPolicy, requiresIndexed)}
	}
	var errs field.ErrorList
	rules, at := s.SuccessPolicy.Rules, path.Child("rules")
	if len(rules) == 0 {
		errs = append(errs, field.Required(at, "at least one rules must be specified when the successPolicy is specified"))
	}
	if len(rules) > maxPolicyRules {
		errs = append(errs, field.TooMany(at, len(rules), maxPolicyRules))
	}
	for i := range rules {
		errs = append(errs, successRule(&rules[i], int32(validate.OrZero(s.Completions)), at.Index(i))...)
	}
	return errs
}

func successRule(r *batchv1.SuccessPolicyRule, completions int32, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.SucceededCount == nil && r.SucceededIndexes == nil {
		errs = append(errs, field.Required(path, "at least one of succeededCount or succeededIndexes must be specified"))
	}
	var named int32
	if r.SucceededIndexes != nil {
		at := path.Child("succeededIndexes")
		if len(*r.SucceededIndexes) > maxSucceededIndexes {
			errs = append(errs, field.TooLong(at, "", maxSucceededIndexes))
		}
		ranges, err := parseIndexes(*r.SucceededIndexes, completions)
		if err != nil {
			errs = append(errs, field.Invalid(at, *r.SucceededIndexes, "error parsing succeededIndexes: "+err.Error()))
		}
		for _, r := range ranges {
			named += r.last - r.first + 1
		}
	}
	if r.SucceededCount == nil {
		return errs
	}
	at := path.Child("succeededCount")
	errs = append(errs, validation.ValidateNonnegativeField(int64(*r.SucceededCount), at)...)
	if *r.SucceededCount > completions {
		errs = append(errs, field.Invalid(at, *r.SucceededCount,
			fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", completions)))
	}
	if r.SucceededIndexes != nil && *r.SucceededCount > named {
		errs = append(errs, field.Invalid(at, *r.SucceededCount,
			fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", named)))
	}
	return errs
}
