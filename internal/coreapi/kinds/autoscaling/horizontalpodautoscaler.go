package autoscaling

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	quantities "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

// A HorizontalPodAutoscaler is one object in two versions. autoscaling/v2 is stored. autoscaling/v1 has a field for the CPU
// target only and keeps everything else in annotations, as in kube-apiserver, so that a v1 client that writes back the object
// it has read loses nothing.

// The values of the annotations are JSON of types that autoscaling/v1 defines only for this purpose.
const (
	MetricsAnnotation    = "autoscaling.alpha.kubernetes.io/metrics"
	currentAnnotation    = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation = "autoscaling.alpha.kubernetes.io/conditions"
	BehaviorAnnotation   = "autoscaling.alpha.kubernetes.io/behavior"
	toleranceUp          = "autoscaling.alpha.kubernetes.io/scale-up-tolerance"
	toleranceDown        = "autoscaling.alpha.kubernetes.io/scale-down-tolerance"
)

func addAutoscalerConversions(scheme *runtime.Scheme) error {
	defaults.Register(scheme, &autoscalingv1.HorizontalPodAutoscaler{}, &autoscalingv1.HorizontalPodAutoscalerList{}, defaults.Of(defaultOldAutoscaler))
	return cmp.Or(
		scheme.AddConversionFunc((*autoscalingv1.HorizontalPodAutoscaler)(nil), (*autoscalingv2.HorizontalPodAutoscaler)(nil), func(a, b any, _ conversion.Scope) error {
			AutoscalerFromV1(a.(*autoscalingv1.HorizontalPodAutoscaler), b.(*autoscalingv2.HorizontalPodAutoscaler))
			return nil
		}),
		scheme.AddConversionFunc((*autoscalingv2.HorizontalPodAutoscaler)(nil), (*autoscalingv1.HorizontalPodAutoscaler)(nil), func(a, b any, _ conversion.Scope) error {
			return AutoscalerToV1(a.(*autoscalingv2.HorizontalPodAutoscaler), b.(*autoscalingv1.HorizontalPodAutoscaler))
		}),
		scheme.AddConversionFunc((*autoscalingv1.HorizontalPodAutoscalerList)(nil), (*autoscalingv2.HorizontalPodAutoscalerList)(nil), func(a, b any, _ conversion.Scope) error {
			in, out := a.(*autoscalingv1.HorizontalPodAutoscalerList), b.(*autoscalingv2.HorizontalPodAutoscalerList)
			out.ListMeta, out.Items = in.ListMeta, make([]autoscalingv2.HorizontalPodAutoscaler, len(in.Items))
			for i := range in.Items {
				AutoscalerFromV1(&in.Items[i], &out.Items[i])
			}
			return nil
		}),
		scheme.AddConversionFunc((*autoscalingv2.HorizontalPodAutoscalerList)(nil), (*autoscalingv1.HorizontalPodAutoscalerList)(nil), func(a, b any, _ conversion.Scope) error {
			in, out := a.(*autoscalingv2.HorizontalPodAutoscalerList), b.(*autoscalingv1.HorizontalPodAutoscalerList)
			out.ListMeta, out.Items = in.ListMeta, make([]autoscalingv1.HorizontalPodAutoscaler, len(in.Items))
			for i := range in.Items {
				if err := AutoscalerToV1(&in.Items[i], &out.Items[i]); err != nil {
					return err
				}
			}
			return nil
		}),
	)
}

// dropAutoscalerAnnotations removes the annotations of v1 before an object is stored. v2 has fields for their contents, and the
// two could diverge.
func dropAutoscalerAnnotations(obj runtime.Object) {
	a := obj.(*autoscalingv2.HorizontalPodAutoscaler)
	a.Annotations = withoutAutoscalerAnnotations(a.Annotations)
}

// withoutAutoscalerAnnotations returns annotations unchanged if none has to be removed.
func withoutAutoscalerAnnotations(annotations map[string]string) map[string]string {
	var left map[string]string
	for _, key := range []string{MetricsAnnotation, currentAnnotation, conditionsAnnotation, BehaviorAnnotation, toleranceUp, toleranceDown} {
		if _, there := annotations[key]; there {
			if left == nil {
				left = maps.Clone(annotations)
			}
			delete(left, key)
		}
	}
	if left == nil {
		return annotations
	}
	return left
}

func AutoscalerFromV1(in *autoscalingv1.HorizontalPodAutoscaler, out *autoscalingv2.HorizontalPodAutoscaler) {
	*out = autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas,
			MaxReplicas:    in.Spec.MaxReplicas,
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration,
			LastScaleTime:      in.Status.LastScaleTime,
			CurrentReplicas:    in.Status.CurrentReplicas,
			DesiredReplicas:    in.Status.DesiredReplicas,
		},
	}
	out.Annotations = withoutAutoscalerAnnotations(in.Annotations)
	var metrics []autoscalingv1.MetricSpec
	if fromAnnotation(in.Annotations, MetricsAnnotation, &metrics) {
		for i := range metrics {
			out.Spec.Metrics = append(out.Spec.Metrics, metricFromV1(&metrics[i]))
		}
	}
	if use := in.Spec.TargetCPUUtilizationPercentage; use != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuMetric(*use))
	}
	if len(out.Spec.Metrics) == 0 {
		out.Spec.Metrics = []autoscalingv2.MetricSpec{defaultCPUMetric()}
	}
	var behavior behaviorJSON
	if fromAnnotation(in.Annotations, BehaviorAnnotation, &behavior) && behavior != (behaviorJSON{}) {
		out.Spec.Behavior = behavior.behavior()
	}
	autoscalerStatusFromV1(in, &out.Status)
}

func autoscalerStatusFromV1(in *autoscalingv1.HorizontalPodAutoscaler, out *autoscalingv2.HorizontalPodAutoscalerStatus) {
	var current []autoscalingv1.MetricStatus
	switch use := in.Status.CurrentCPUUtilizationPercentage; {
	case fromAnnotation(in.Annotations, currentAnnotation, &current): // more complete than the field
		out.CurrentMetrics = make([]autoscalingv2.MetricStatus, len(current))
		for i := range current {
			out.CurrentMetrics[i] = currentFromV1(&current[i])
		}
	case use != nil:
		percent := *use
		out.CurrentMetrics = []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{
				Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: &percent},
			},
		}}
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	if fromAnnotation(in.Annotations, conditionsAnnotation, &conditions) {
		out.Conditions = make([]autoscalingv2.HorizontalPodAutoscalerCondition, len(conditions))
		for i, c := range conditions {
			out.Conditions[i] = autoscalingv2.HorizontalPodAutoscalerCondition{
				Type: autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime,
				Reason: c.Reason, Message: c.Message, ObservedGeneration: c.ObservedGeneration,
			}
		}
	}
}

// fromAnnotation reports whether an annotation exists and can be parsed. Invalid values are dropped, as in kube-apiserver.
func fromAnnotation(annotations map[string]string, key string, into any) bool {
	text, there := annotations[key]
	return there && json.Unmarshal([]byte(text), into) == nil
}

func AutoscalerToV1(in *autoscalingv2.HorizontalPodAutoscaler, out *autoscalingv1.HorizontalPodAutoscaler) error {
	*out = autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas,
			MaxReplicas:    in.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration,
			LastScaleTime:      in.Status.LastScaleTime,
			CurrentReplicas:    in.Status.CurrentReplicas,
			DesiredReplicas:    in.Status.DesiredReplicas,
		},
	}
	var others []autoscalingv1.MetricSpec
	for i := range in.Spec.Metrics {
		m := &in.Spec.Metrics[i]
		if use := cpuUse(m); use != nil {
			if out.Spec.TargetCPUUtilizationPercentage == nil {
				percent := *use
				out.Spec.TargetCPUUtilizationPercentage = &percent
			}
			continue
		}
		others = append(others, metricToV1(m))
	}
	current := make([]autoscalingv1.MetricStatus, len(in.Status.CurrentMetrics))
	for i := range in.Status.CurrentMetrics {
		m := &in.Status.CurrentMetrics[i]
		current[i] = currentToV1(m)
		if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU && m.Resource.Current.AverageUtilization != nil {
			percent := *m.Resource.Current.AverageUtilization
			out.Status.CurrentCPUUtilizationPercentage = &percent
		}
	}
	conditions := make([]autoscalingv1.HorizontalPodAutoscalerCondition, len(in.Status.Conditions))
	for i, c := range in.Status.Conditions {
		conditions[i] = autoscalingv1.HorizontalPodAutoscalerCondition{
			Type: autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime,
			Reason: c.Reason, Message: c.Message, ObservedGeneration: c.ObservedGeneration,
		}
	}
	out.Annotations = withoutAutoscalerAnnotations(in.Annotations)
	added := map[string]any{}
	if len(others) > 0 {
		added[MetricsAnnotation] = others
	}
	if len(current) > 0 {
		added[currentAnnotation] = current
	}
	if len(conditions) > 0 {
		added[conditionsAnnotation] = conditions
	}
	if in.Spec.Behavior != nil {
		added[BehaviorAnnotation] = behaviorOf(in.Spec.Behavior)
	}
	if len(added) == 0 {
		return nil
	}
	annotations := make(map[string]string, len(out.Annotations)+len(added))
	maps.Copy(annotations, out.Annotations)
	for key, value := range added {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("keep %s in an annotation: %w", key, err)
		}
		annotations[key] = string(text)
	}
	out.Annotations = annotations
	return nil
}

// cpuUse returns the CPU utilization target of a metric, which v1 has a field for, or nil for another metric.
func cpuUse(m *autoscalingv2.MetricSpec) *int32 {
	if m.Type != autoscalingv2.ResourceMetricSourceType || m.Resource == nil || m.Resource.Name != corev1.ResourceCPU {
		return nil
	}
	return m.Resource.Target.AverageUtilization
}

// autoscaling/v1 has the metrics of v2beta1: targets have no type, and some amounts can be zero but not absent.

func identifierOf(name string) autoscalingv2.MetricIdentifier {
	return autoscalingv2.MetricIdentifier{Name: name}
}

// orZero is for amounts that v1 requires.
func orZero(q *quantities.Quantity) quantities.Quantity {
	if q == nil {
		return quantities.Quantity{}
	}
	return *q
}

// useOrAverage returns the target of a resource metric, as utilization if use is not nil, or else as an average value.
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

// objectFromV1 drops a zero value next to an average: v1 requires the value, and validation would refuse both.
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

// behaviorJSON is the behavior as kube-apiserver encodes it in the annotation: with the Go field names, because its internal
// type has no JSON tags. Decoding is case-insensitive.
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

func horizontalPodAutoscalerResource() registry.Resource {
	return registry.Resource{
		Name: "horizontalpodautoscalers", Singular: "horizontalpodautoscaler", ShortNames: []string{"hpa"}, Categories: []string{"all"},
		Object: &autoscalingv2.HorizontalPodAutoscaler{}, List: &autoscalingv2.HorizontalPodAutoscalerList{}, AllowUnconditionalUpdate: true, Generations: true,
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {maxReplicas: 1, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}",
		},
		Rules:    validate.WithStatus(validateHorizontalPodAutoscaler, validateHorizontalPodAutoscalerUpdate, validateHorizontalPodAutoscalerStatus).CheckFinalizers(),
		Defaults: defaults.Of(defaultHorizontalPodAutoscaler),
		Columns:  horizontalPodAutoscalerColumns,
		Spec: registry.SpecOf(func(o *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscalerSpec {
			return &o.Spec
		}),
		Status: registry.StatusOf(func(o *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscalerStatus {
			return &o.Status
		}),
		StatusChangesMetadata: true, AlsoServedIn: []schema.GroupVersion{autoscalingv1.SchemeGroupVersion},
		PrepareCreate: dropAutoscalerAnnotations, PrepareUpdate: dropAutoscalerAnnotationsAgain, PrepareStatus: dropAutoscalerAnnotationsAgain,
	}
}

// dropAutoscalerAnnotationsAgain drops the annotations on updates through either version.
func dropAutoscalerAnnotationsAgain(obj, _ runtime.Object) { dropAutoscalerAnnotations(obj) }
