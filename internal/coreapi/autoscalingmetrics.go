package coreapi

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	quantities "k8s.io/apimachinery/pkg/api/resource"
)

// The metrics of autoscaling/v1 are those of the first beta of v2: a target has no type of its own there, and some amounts
// cannot be absent, only zero.

func identifierOf(name string) autoscalingv2.MetricIdentifier {
	return autoscalingv2.MetricIdentifier{Name: name}
}

// orZero is for amounts that v1 cannot leave out.
func orZero(q *quantities.Quantity) quantities.Quantity {
	if q == nil {
		return quantities.Quantity{}
	}
	return *q
}

// useOrAverage is the target of a resource, by share of what is requested or by amount.
func useOrAverage(use *int32, average *quantities.Quantity) autoscalingv2.MetricTarget {
	target := autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: use, AverageValue: average}
	if use == nil {
		target.Type = autoscalingv2.AverageValueMetricType
	}
	return target
}

func metricFromV1(in *autoscalingv1.MetricSpec) autoscalingv2.MetricSpec {
	out := autoscalingv2.MetricSpec{Type: autoscalingv2.MetricSourceType(in.Type)}
	if m := in.Object; m != nil {
		out.Object = objectFromV1(m)
	}
	if m := in.Pods; m != nil {
		id := identifierOf(m.MetricName)
		id.Selector = m.Selector
		out.Pods = &autoscalingv2.PodsMetricSource{Metric: id, Target: autoscalingv2.MetricTarget{
			Type: autoscalingv2.AverageValueMetricType, AverageValue: &m.TargetAverageValue,
		}}
	}
	if m := in.Resource; m != nil {
		out.Resource = &autoscalingv2.ResourceMetricSource{Name: m.Name, Target: useOrAverage(m.TargetAverageUtilization, m.TargetAverageValue)}
	}
	if m := in.ContainerResource; m != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricSource{
			Name: m.Name, Container: m.Container, Target: useOrAverage(m.TargetAverageUtilization, m.TargetAverageValue),
		}
	}
	if m := in.External; m != nil {
		id := identifierOf(m.MetricName)
		id.Selector = m.MetricSelector
		target := autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: m.TargetValue, AverageValue: m.TargetAverageValue}
		if m.TargetValue == nil {
			target.Type = autoscalingv2.AverageValueMetricType
		}
		out.External = &autoscalingv2.ExternalMetricSource{Metric: id, Target: target}
	}
	return out
}

// objectFromV1 takes a zero value beside an average for an absent one: v1 cannot leave it out, and validation would
// refuse it.
func objectFromV1(m *autoscalingv1.ObjectMetricSource) *autoscalingv2.ObjectMetricSource {
	id := identifierOf(m.MetricName)
	id.Selector = m.Selector
	target := autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: &m.TargetValue, AverageValue: m.AverageValue}
	if m.AverageValue != nil {
		target.Type = autoscalingv2.AverageValueMetricType
		if m.TargetValue.IsZero() {
			target.Value = nil
		}
	}
	return &autoscalingv2.ObjectMetricSource{DescribedObject: autoscalingv2.CrossVersionObjectReference(m.Target), Metric: id, Target: target}
}

func metricToV1(in *autoscalingv2.MetricSpec) autoscalingv1.MetricSpec {
	out := autoscalingv1.MetricSpec{Type: autoscalingv1.MetricSourceType(in.Type)}
	if m := in.Object; m != nil {
		out.Object = &autoscalingv1.ObjectMetricSource{
			Target: autoscalingv1.CrossVersionObjectReference(m.DescribedObject), MetricName: m.Metric.Name, Selector: m.Metric.Selector,
			TargetValue: orZero(m.Target.Value), AverageValue: m.Target.AverageValue,
		}
	}
	if m := in.Pods; m != nil {
		out.Pods = &autoscalingv1.PodsMetricSource{
			MetricName: m.Metric.Name, Selector: m.Metric.Selector, TargetAverageValue: orZero(m.Target.AverageValue),
		}
	}
	if m := in.Resource; m != nil {
		out.Resource = &autoscalingv1.ResourceMetricSource{
			Name: m.Name, TargetAverageUtilization: m.Target.AverageUtilization, TargetAverageValue: m.Target.AverageValue,
		}
	}
	if m := in.ContainerResource; m != nil {
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricSource{
			Name: m.Name, Container: m.Container, TargetAverageUtilization: m.Target.AverageUtilization, TargetAverageValue: m.Target.AverageValue,
		}
	}
	if m := in.External; m != nil {
		out.External = &autoscalingv1.ExternalMetricSource{
			MetricName: m.Metric.Name, MetricSelector: m.Metric.Selector, TargetValue: m.Target.Value, TargetAverageValue: m.Target.AverageValue,
		}
	}
	return out
}

func currentFromV1(in *autoscalingv1.MetricStatus) autoscalingv2.MetricStatus {
	out := autoscalingv2.MetricStatus{Type: autoscalingv2.MetricSourceType(in.Type)}
	if m := in.Object; m != nil {
		id := identifierOf(m.MetricName)
		id.Selector = m.Selector
		out.Object = &autoscalingv2.ObjectMetricStatus{
			Metric: id, DescribedObject: autoscalingv2.CrossVersionObjectReference(m.Target),
			Current: autoscalingv2.MetricValueStatus{Value: &m.CurrentValue, AverageValue: m.AverageValue},
		}
	}
	if m := in.Pods; m != nil {
		id := identifierOf(m.MetricName)
		id.Selector = m.Selector
		out.Pods = &autoscalingv2.PodsMetricStatus{Metric: id, Current: autoscalingv2.MetricValueStatus{AverageValue: &m.CurrentAverageValue}}
	}
	if m := in.Resource; m != nil {
		out.Resource = &autoscalingv2.ResourceMetricStatus{Name: m.Name, Current: autoscalingv2.MetricValueStatus{
			AverageValue: &m.CurrentAverageValue, AverageUtilization: m.CurrentAverageUtilization,
		}}
	}
	if m := in.ContainerResource; m != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{Name: m.Name, Container: m.Container, Current: autoscalingv2.MetricValueStatus{
			AverageValue: &m.CurrentAverageValue, AverageUtilization: m.CurrentAverageUtilization,
		}}
	}
	if m := in.External; m != nil {
		id := identifierOf(m.MetricName)
		id.Selector = m.MetricSelector
		out.External = &autoscalingv2.ExternalMetricStatus{
			Metric: id, Current: autoscalingv2.MetricValueStatus{Value: &m.CurrentValue, AverageValue: m.CurrentAverageValue},
		}
	}
	return out
}

func currentToV1(in *autoscalingv2.MetricStatus) autoscalingv1.MetricStatus {
	out := autoscalingv1.MetricStatus{Type: autoscalingv1.MetricSourceType(in.Type)}
	if m := in.Object; m != nil {
		out.Object = &autoscalingv1.ObjectMetricStatus{
			Target: autoscalingv1.CrossVersionObjectReference(m.DescribedObject), MetricName: m.Metric.Name, Selector: m.Metric.Selector,
			CurrentValue: orZero(m.Current.Value), AverageValue: m.Current.AverageValue,
		}
	}
	if m := in.Pods; m != nil {
		out.Pods = &autoscalingv1.PodsMetricStatus{
			MetricName: m.Metric.Name, Selector: m.Metric.Selector, CurrentAverageValue: orZero(m.Current.AverageValue),
		}
	}
	if m := in.Resource; m != nil {
		out.Resource = &autoscalingv1.ResourceMetricStatus{
			Name: m.Name, CurrentAverageUtilization: m.Current.AverageUtilization, CurrentAverageValue: orZero(m.Current.AverageValue),
		}
	}
	if m := in.ContainerResource; m != nil {
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricStatus{
			Name: m.Name, Container: m.Container, CurrentAverageUtilization: m.Current.AverageUtilization, CurrentAverageValue: orZero(m.Current.AverageValue),
		}
	}
	if m := in.External; m != nil {
		out.External = &autoscalingv1.ExternalMetricStatus{
			MetricName: m.Metric.Name, MetricSelector: m.Metric.Selector, CurrentValue: orZero(m.Current.Value), CurrentAverageValue: m.Current.AverageValue,
		}
	}
	return out
}

// behaviorJSON is the behaviour as kube-apiserver writes it into the annotation: by the names of Go's fields, which its
// internal type has no others for. Reading takes any case.
type behaviorJSON struct{ ScaleUp, ScaleDown *rulesJSON }

type rulesJSON struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []policyJSON
	Tolerance                  *quantities.Quantity
}

type policyJSON struct {
	Type          autoscalingv2.HPAScalingPolicyType
	Value         int32
	PeriodSeconds int32
}

func behaviorOf(b *autoscalingv2.HorizontalPodAutoscalerBehavior) behaviorJSON {
	rules := func(r *autoscalingv2.HPAScalingRules) *rulesJSON {
		if r == nil {
			return nil
		}
		out := &rulesJSON{r.StabilizationWindowSeconds, r.SelectPolicy, nil, r.Tolerance}
		for _, p := range r.Policies {
			out.Policies = append(out.Policies, policyJSON(p))
		}
		return out
	}
	return behaviorJSON{rules(b.ScaleUp), rules(b.ScaleDown)}
}

func (b behaviorJSON) behavior() *autoscalingv2.HorizontalPodAutoscalerBehavior {
	rules := func(r *rulesJSON) *autoscalingv2.HPAScalingRules {
		if r == nil {
			return nil
		}
		out := &autoscalingv2.HPAScalingRules{
			StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy, Tolerance: r.Tolerance,
		}
		for _, p := range r.Policies {
			out.Policies = append(out.Policies, autoscalingv2.HPAScalingPolicy(p))
		}
		return out
	}
	return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(b.ScaleUp), ScaleDown: rules(b.ScaleDown)}
}
