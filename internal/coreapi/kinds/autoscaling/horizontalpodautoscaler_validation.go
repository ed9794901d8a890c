package autoscaling

import (
	"errors"
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/validate"
)

const (
	maxRulePeriod    = 1800 // seconds
	maxStabilization = 3600 // seconds
)

func validateHorizontalPodAutoscaler(a *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	errs := validate.ObjectMeta(&a.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	return append(errs, autoscalerSpec(&a.Spec, nil)...)
}

func validateHorizontalPodAutoscalerUpdate(a, old *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
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
	// ReplicationController is the only scalable kind in the core group. References that were accepted before are kept.
	kept := old != nil && old.ScaleTargetRef.APIVersion == target.APIVersion && old.ScaleTargetRef.Kind == target.Kind
	errs = append(errs, crossVersion(target, target.Kind == "ReplicationController", kept, path.Child("scaleTargetRef"))...)
	errs = append(errs, metrics(s, old, path.Child("metrics"))...)
	if b := s.Behavior; b != nil {
		errs = append(errs, scalingRules(b.ScaleUp, path.Child("behavior", "scaleUp"))...)
		errs = append(errs, scalingRules(b.ScaleDown, path.Child("behavior", "scaleDown"))...)
	}
	return errs
}

// crossVersion checks a reference to an object by kind and name. core allows the core group.
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

// segment checks a required name that will be a URL path segment.
func segment(name, missing string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, missing)}
	}
	return validate.Invalid(path, name, content.IsPathSegmentName(name))
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
		errs = append(errs, validate.OneOf(*r.SelectPolicy, path.Child("selectPolicy"), autoscalingv2.DisabledPolicySelect,
			autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)...)
	}
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(path.Child("policies"), "must specify at least one Policy"))
	}
	errs = append(errs, validate.Each(r.Policies, path.Child("policies"), scalingPolicy)...)
	if r.Tolerance != nil && r.Tolerance.Sign() < 0 {
		errs = append(errs, field.Invalid(path.Child("tolerance"), r.Tolerance.String(), validation.IsNegativeErrorMsg))
	}
	return errs
}

func scalingPolicy(p *autoscalingv2.HPAScalingPolicy, path *field.Path) field.ErrorList {
	errs := validate.OneOf(p.Type, path.Child("type"), autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)
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

func validateHorizontalPodAutoscalerStatus(a, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	for i, c := range a.Status.Conditions {
		errs = append(errs, validate.NonNegative(path.Child("conditions").Index(i), validate.NamedNumbers{"observedGeneration": validate.OrZero(c.ObservedGeneration)})...)
	}
	return append(errs, validate.NonNegative(path, validate.NamedNumbers{
		"currentReplicas": int64(a.Status.CurrentReplicas), "desiredReplicas": int64(a.Status.DesiredReplicas),
	})...)
}

const (
	noSource     = "must populate information for the given metric source"
	oneSource    = "must populate the given metric source only"
	valueOrUse   = "must set either a target raw value or a target utilization"
	notBothOfUse = "may not set both a target raw value and a target utilization"
)

func metrics(s, old *autoscalingv2.HorizontalPodAutoscalerSpec, path *field.Path) field.ErrorList {
	lenient := old != nil && slices.ContainsFunc(old.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil && referenceVersion(&m.Object.DescribedObject, true) != nil
	})
	var errs field.ErrorList
	outside := false // has metrics that exist without pods
	for i := range s.Metrics {
		errs = append(errs, metric(&s.Metrics[i], lenient, path.Index(i))...)
		kind := s.Metrics[i].Type
		outside = outside || kind == autoscalingv2.ObjectMetricSourceType || kind == autoscalingv2.ExternalMetricSourceType
	}
	if s.MinReplicas != nil && *s.MinReplicas == 0 && !outside {
		errs = append(errs, field.Forbidden(path, "must specify at least one Object or External metric to support scaling to zero replicas"))
	}
	return errs
}

// metricSource is one member of a metric. The metric's type selects the member in use.
type metricSource struct {
	sourceType autoscalingv2.MetricSourceType
	name       string
	given      bool
	check      func(*field.Path) field.ErrorList
}

func metricSources(m *autoscalingv2.MetricSpec, lenient bool) []metricSource {
	return []metricSource{
		{autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil, func(at *field.Path) field.ErrorList { return objectMetric(m.Object, lenient, at) }},
		{autoscalingv2.ExternalMetricSourceType, "external", m.External != nil, func(at *field.Path) field.ErrorList { return externalMetric(m.External, at) }},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(at *field.Path) field.ErrorList { return podsMetric(m.Pods, at) }},
		{autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil, func(at *field.Path) field.ErrorList { return resourceMetric(m.Resource, at) }},
		{autoscalingv2.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil,
			func(at *field.Path) field.ErrorList { return containerMetric(m.ContainerResource, at) }},
	}
}

// metric checks only the first member: if several are set, the intended one is unknown.
func metric(m *autoscalingv2.MetricSpec, lenient bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	sources := metricSources(m, lenient)
	present, known := 0, false
	for _, s := range sources {
		if s.given {
			if present++; present == 1 {
				errs = append(errs, s.check(path.Child(s.name))...)
			}
		}
		if s.sourceType == m.Type {
			known = true
			if !s.given {
				errs = append(errs, field.Required(path.Child(s.name), noSource))
			}
		}
	}
	if m.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric source type"))
	}
	if !known {
		errs = append(errs, field.NotSupported(path.Child("type"), m.Type, []autoscalingv2.MetricSourceType{
			autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType, autoscalingv2.ObjectMetricSourceType,
			autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType,
		}))
	}
	if present == 1 {
		return errs
	}
	for _, s := range sources {
		if s.given && s.sourceType != m.Type {
			errs = append(errs, field.Forbidden(path.Child(s.name), oneSource))
		}
	}
	return errs
}

func objectMetric(m *autoscalingv2.ObjectMetricSource, lenient bool, path *field.Path) field.ErrorList {
	errs := crossVersion(&m.DescribedObject, true, lenient, path.Child("describedObject"))
	errs = append(errs, segment(m.Metric.Name, "must specify a metric name", path.Child("metric", "name"))...)
	errs = append(errs, metricTarget(&m.Target, path.Child("target"))...)
	if m.Target.Value == nil && m.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must set either a target value or averageValue"))
	}
	return errs
}

func externalMetric(m *autoscalingv2.ExternalMetricSource, path *field.Path) field.ErrorList {
	errs := segment(m.Metric.Name, "must specify a metric name", path.Child("metric", "name"))
	errs = append(errs, metricTarget(&m.Target, path.Child("target"))...)
	switch value, average := m.Target.Value != nil, m.Target.AverageValue != nil; {
	case !value && !average:
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must set either a target value for metric or a per-pod target"))
	case value && average:
		errs = append(errs, field.Forbidden(path.Child("target", "value"), "may not set both a target value for metric and a per-pod target"))
	}
	return errs
}

func podsMetric(m *autoscalingv2.PodsMetricSource, path *field.Path) field.ErrorList {
	errs := segment(m.Metric.Name, "must specify a metric name", path.Child("metric", "name"))
	errs = append(errs, metricTarget(&m.Target, path.Child("target"))...)
	if m.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must specify a positive target averageValue"))
	}
	return errs
}

func resourceMetric(m *autoscalingv2.ResourceMetricSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if m.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "must specify a resource name"))
	}
	return append(errs, useTarget(&m.Target, path.Child("target"))...)
}

func containerMetric(m *autoscalingv2.ContainerResourceMetricSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if m.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "must specify a resource name"))
	} else {
		errs = append(errs, validate.ContainerResourceName(m.Name, path.Child("name"))...)
	}
	if m.Container == "" {
		errs = append(errs, field.Required(path.Child("container"), "must specify a container"))
	} else {
		errs = append(errs, validate.DnsLabel(m.Container, path.Child("container"))...)
	}
	return append(errs, useTarget(&m.Target, path.Child("target"))...)
}

func useTarget(t *autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	errs := metricTarget(t, path)
	switch use, value := t.AverageUtilization != nil, t.AverageValue != nil; {
	case !use && !value:
		errs = append(errs, field.Required(path.Child("averageUtilization"), valueOrUse))
	case use && value:
		errs = append(errs, field.Forbidden(path.Child("averageValue"), notBothOfUse))
	}
	return errs
}

func metricTarget(t *autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric target type"))
	}
	switch t.Type {
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	default:
		errs = append(errs, field.Invalid(path.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	errs = append(errs, aboveZero(t.Value, path.Child("value"))...)
	errs = append(errs, aboveZero(t.AverageValue, path.Child("averageValue"))...)
	if use := t.AverageUtilization; use != nil && *use < 1 {
		errs = append(errs, field.Invalid(path.Child("averageUtilization"), *use, "must be greater than 0"))
	}
	return errs
}

func aboveZero(q *resource.Quantity, path *field.Path) field.ErrorList {
	if q == nil || q.Sign() > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, q, "must be positive")}
}
