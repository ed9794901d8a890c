package validate

import (
	"errors"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxRulePeriod    = 1800 // seconds
	maxStabilization = 3600 // seconds
)

// Scale returns what is wrong with a wish to scale. Its other metadata is not written anywhere.
func Scale(s *autoscalingv1.Scale) field.ErrorList {
	errs := metav1validation.ValidateManagedFields(s.ManagedFields, field.NewPath("metadata", "managedFields"))
	return append(errs, validation.ValidateNonnegativeField(int64(s.Spec.Replicas), field.NewPath("spec", "replicas"))...)
}

func ValidateHorizontalPodAutoscaler(a *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	errs := objectMeta(&a.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	return append(errs, autoscalerSpec(&a.Spec, nil)...)
}

func ValidateHorizontalPodAutoscalerUpdate(a, old *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	return autoscalerSpec(&a.Spec, &old.Spec)
}

// autoscalerSpec tolerates references that were accepted before their group was checked.
func autoscalerSpec(s, old *autoscalingv2.HorizontalPodAutoscalerSpec) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if least := s.MinReplicas; least != nil && *least < 0 {
		errs = append(errs, field.Invalid(path.Child("minReplicas"), *least, "must be greater than or equal to 0"))
	}
	switch at := path.Child("maxReplicas"); {
	case s.MaxReplicas == 0:
		errs = append(errs, field.Required(at, ""))
	case s.MaxReplicas < 0:
		errs = append(errs, field.Invalid(at, s.MaxReplicas, "must be greater than or equal to 1"))
	}
	if s.MinReplicas != nil && s.MaxReplicas < *s.MinReplicas {
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), s.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	target := &s.ScaleTargetRef
	// Of the kinds that can be scaled only one is in the group without a name; what was let through once stays.
	kept := old != nil && old.ScaleTargetRef.APIVersion == target.APIVersion && old.ScaleTargetRef.Kind == target.Kind
	errs = append(errs, crossVersion(target, target.Kind == "ReplicationController", kept, path.Child("scaleTargetRef"))...)
	errs = append(errs, metrics(s, old, path.Child("metrics"))...)
	if b := s.Behavior; b != nil {
		errs = append(errs, scalingRules(b.ScaleUp, path.Child("behavior", "scaleUp"))...)
		errs = append(errs, scalingRules(b.ScaleDown, path.Child("behavior", "scaleDown"))...)
	}
	return errs
}

// crossVersion checks a reference to an object by kind and name. core: it may be in the group without a name.
func crossVersion(r *autoscalingv2.CrossVersionObjectReference, core, lenient bool, path *field.Path) field.ErrorList {
	errs := segment(r.Kind, "", path.Child("kind"))
	errs = append(errs, segment(r.Name, "", path.Child("name"))...)
	if lenient {
		return errs
	}
	if err := referenceVersion(r, core); err != nil {
		errs = append(errs, field.Invalid(path.Child("apiVersion"), r.APIVersion, err.Error()))
	}
	return errs
}

func referenceVersion(r *autoscalingv2.CrossVersionObjectReference, core bool) error {
	version, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil {
		return err
	}
	if !core && version.Group == "" {
		return errors.New("apiVersion must specify API group")
	}
	return nil
}

// segment is for a required name that will stand in a URL.
func segment(name, missing string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, missing)}
	}
	return invalid(path, name, content.IsPathSegmentName(name))
}

func scalingRules(r *autoscalingv2.HPAScalingRules, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	if seconds := r.StabilizationWindowSeconds; seconds != nil {
		at := path.Child("stabilizationWindowSeconds")
		if *seconds < 0 {
			errs = append(errs, field.Invalid(at, *seconds, "must be greater than or equal to zero"))
		}
		if *seconds > maxStabilization {
			errs = append(errs, field.Invalid(at, *seconds, fmt.Sprintf("must be less than or equal to %d", maxStabilization)))
		}
	}
	if r.SelectPolicy != nil {
		errs = append(errs, oneOf(*r.SelectPolicy, path.Child("selectPolicy"), autoscalingv2.DisabledPolicySelect,
			autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)...)
	}
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(path.Child("policies"), "must specify at least one Policy"))
	}
	for i := range r.Policies {
		errs = append(errs, scalingPolicy(&r.Policies[i], path.Child("policies").Index(i))...)
	}
	if r.Tolerance != nil && r.Tolerance.Sign() < 0 {
		errs = append(errs, field.Invalid(path.Child("tolerance"), r.Tolerance.String(), validation.IsNegativeErrorMsg))
	}
	return errs
}

func scalingPolicy(p *autoscalingv2.HPAScalingPolicy, path *field.Path) field.ErrorList {
	errs := oneOf(p.Type, path.Child("type"), autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)
	if p.Value <= 0 {
		errs = append(errs, field.Invalid(path.Child("value"), p.Value, "must be greater than zero"))
	}
	if p.PeriodSeconds <= 0 {
		errs = append(errs, field.Invalid(path.Child("periodSeconds"), p.PeriodSeconds, "must be greater than zero"))
	}
	if p.PeriodSeconds > maxRulePeriod {
		errs = append(errs, field.Invalid(path.Child("periodSeconds"), p.PeriodSeconds, fmt.Sprintf("must be less than or equal to %d", maxRulePeriod)))
	}
	return errs
}

func ValidateHorizontalPodAutoscalerStatus(a, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	for i, c := range a.Status.Conditions {
		errs = append(errs, naturals(path.Child("conditions").Index(i), fieldsOf{"observedGeneration": given(c.ObservedGeneration)})...)
	}
	return append(errs, naturals(path, fieldsOf{
		"currentReplicas": int64(a.Status.CurrentReplicas), "desiredReplicas": int64(a.Status.DesiredReplicas),
	})...)
}
