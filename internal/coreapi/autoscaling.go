package coreapi

import (
	"encoding/json"
	"fmt"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/coreapi/defaults"
)

// A HorizontalPodAutoscaler is one object in two versions: autoscaling/v2 is stored, and autoscaling/v1 shows the target
// of CPU that it knows and keeps everything else in annotations, as kube-apiserver does, so that a client of v1 that
// writes back what it read loses nothing.

// The annotations. Their values are JSON of types that autoscaling/v1 has for nothing else.
const (
	metricsAnnotation    = "autoscaling.alpha.kubernetes.io/metrics"
	currentAnnotation    = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation   = "autoscaling.alpha.kubernetes.io/behavior"
	toleranceUp          = "autoscaling.alpha.kubernetes.io/scale-up-tolerance"
	toleranceDown        = "autoscaling.alpha.kubernetes.io/scale-down-tolerance"
)

func addAutoscalerConversions(scheme *runtime.Scheme) error {
	defaults.Register(scheme, &autoscalingv1.HorizontalPodAutoscaler{}, &autoscalingv1.HorizontalPodAutoscalerList{}, defaults.Of(defaults.DefaultOldAutoscaler))
	return firstError(
		scheme.AddConversionFunc((*autoscalingv1.HorizontalPodAutoscaler)(nil), (*autoscalingv2.HorizontalPodAutoscaler)(nil), func(a, b any, _ conversion.Scope) error {
			autoscalerFromV1(a.(*autoscalingv1.HorizontalPodAutoscaler), b.(*autoscalingv2.HorizontalPodAutoscaler))
			return nil
		}),
		scheme.AddConversionFunc((*autoscalingv2.HorizontalPodAutoscaler)(nil), (*autoscalingv1.HorizontalPodAutoscaler)(nil), func(a, b any, _ conversion.Scope) error {
			return autoscalerToV1(a.(*autoscalingv2.HorizontalPodAutoscaler), b.(*autoscalingv1.HorizontalPodAutoscaler))
		}),
		scheme.AddConversionFunc((*autoscalingv1.HorizontalPodAutoscalerList)(nil), (*autoscalingv2.HorizontalPodAutoscalerList)(nil), func(a, b any, _ conversion.Scope) error {
			in, out := a.(*autoscalingv1.HorizontalPodAutoscalerList), b.(*autoscalingv2.HorizontalPodAutoscalerList)
			out.ListMeta, out.Items = in.ListMeta, make([]autoscalingv2.HorizontalPodAutoscaler, len(in.Items))
			for i := range in.Items {
				autoscalerFromV1(&in.Items[i], &out.Items[i])
			}
			return nil
		}),
		scheme.AddConversionFunc((*autoscalingv2.HorizontalPodAutoscalerList)(nil), (*autoscalingv1.HorizontalPodAutoscalerList)(nil), func(a, b any, _ conversion.Scope) error {
			in, out := a.(*autoscalingv2.HorizontalPodAutoscalerList), b.(*autoscalingv1.HorizontalPodAutoscalerList)
			out.ListMeta, out.Items = in.ListMeta, make([]autoscalingv1.HorizontalPodAutoscaler, len(in.Items))
			for i := range in.Items {
				if err := autoscalerToV1(&in.Items[i], &out.Items[i]); err != nil {
					return err
				}
			}
			return nil
		}),
	)
}

// dropAutoscalerAnnotations keeps annotations of v1 out of what is stored: v2 says all of it in fields, which they would
// contradict one day.
func dropAutoscalerAnnotations(obj runtime.Object) {
	a := obj.(*autoscalingv2.HorizontalPodAutoscaler)
	a.Annotations = withoutAutoscalerAnnotations(a.Annotations)
}

// withoutAutoscalerAnnotations returns annotations itself when there is nothing to leave out.
func withoutAutoscalerAnnotations(annotations map[string]string) map[string]string {
	var left map[string]string
	for _, key := range []string{metricsAnnotation, currentAnnotation, conditionsAnnotation, behaviorAnnotation, toleranceUp, toleranceDown} {
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

func autoscalerFromV1(in *autoscalingv1.HorizontalPodAutoscaler, out *autoscalingv2.HorizontalPodAutoscaler) {
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
	if fromAnnotation(in.Annotations, metricsAnnotation, &metrics) {
		for i := range metrics {
			out.Spec.Metrics = append(out.Spec.Metrics, metricFromV1(&metrics[i]))
		}
	}
	if use := in.Spec.TargetCPUUtilizationPercentage; use != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, defaults.CPUMetric(*use))
	}
	if len(out.Spec.Metrics) == 0 {
		out.Spec.Metrics = []autoscalingv2.MetricSpec{defaults.DefaultCPUMetric()}
	}
	var behavior behaviorJSON
	if fromAnnotation(in.Annotations, behaviorAnnotation, &behavior) && behavior != (behaviorJSON{}) {
		out.Spec.Behavior = behavior.behavior()
	}
	autoscalerStatusFromV1(in, &out.Status)
}

func autoscalerStatusFromV1(in *autoscalingv1.HorizontalPodAutoscaler, out *autoscalingv2.HorizontalPodAutoscalerStatus) {
	var current []autoscalingv1.MetricStatus
	switch use := in.Status.CurrentCPUUtilizationPercentage; {
	case fromAnnotation(in.Annotations, currentAnnotation, &current): // says more than the field does
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

// fromAnnotation reports whether an annotation is there and can be read; what somebody broke is dropped, as upstream.
func fromAnnotation(annotations map[string]string, key string, into any) bool {
	text, there := annotations[key]
	return there && json.Unmarshal([]byte(text), into) == nil
}

func autoscalerToV1(in *autoscalingv2.HorizontalPodAutoscaler, out *autoscalingv1.HorizontalPodAutoscaler) error {
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
		added[metricsAnnotation] = others
	}
	if len(current) > 0 {
		added[currentAnnotation] = current
	}
	if len(conditions) > 0 {
		added[conditionsAnnotation] = conditions
	}
	if in.Spec.Behavior != nil {
		added[behaviorAnnotation] = behaviorOf(in.Spec.Behavior)
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

// cpuUse is the share of requested CPU that a metric aims at, which v1 has a field for. Nil: it is another metric.
func cpuUse(m *autoscalingv2.MetricSpec) *int32 {
	if m.Type != autoscalingv2.ResourceMetricSourceType || m.Resource == nil || m.Resource.Name != corev1.ResourceCPU {
		return nil
	}
	return m.Resource.Target.AverageUtilization
}
