package columns

import (
	"fmt"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
)

// metricsShown is how many metrics of an autoscaler its cell holds before it only counts the rest.
const metricsShown = 2

func HorizontalPodAutoscalerColumns() Printer {
	spec, status := autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc(), autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()
	return show(func(a *autoscalingv2.HorizontalPodAutoscaler, now time.Time) []any {
		least := unset
		if a.Spec.MinReplicas != nil {
			least = fmt.Sprint(*a.Spec.MinReplicas)
		}
		return []any{
			a.Name, a.Spec.ScaleTargetRef.Kind + "/" + a.Spec.ScaleTargetRef.Name, targets(a), least, int64(a.Spec.MaxReplicas),
			int64(a.Status.CurrentReplicas), ageOf(a, now),
		}
	}, name(), text("Reference", spec["scaleTargetRef"]), text("Targets", spec["metrics"]), text("MinPods", spec["minReplicas"]),
		text("MaxPods", spec["maxReplicas"]), text("Replicas", status["currentReplicas"]), age())
}

// targets pairs each metric with the status at the same place, current/target.
func targets(a *autoscalingv2.HorizontalPodAutoscaler) string {
	if len(a.Spec.Metrics) == 0 {
		return none
	}
	shown := make([]string, 0, len(a.Spec.Metrics))
	for i := range a.Spec.Metrics {
		var now autoscalingv2.MetricStatus
		if i < len(a.Status.CurrentMetrics) {
			now = a.Status.CurrentMetrics[i]
		}
		shown = append(shown, target(&a.Spec.Metrics[i], &now))
	}
	if more := len(shown) - metricsShown; more > 0 {
		return fmt.Sprintf("%s + %d more...", strings.Join(shown[:metricsShown], ", "), more)
	}
	return strings.Join(shown, ", ")
}

// target never trusts that the member its type promises is there: what is stored may be older than validation.
func target(m *autoscalingv2.MetricSpec, now *autoscalingv2.MetricStatus) string {
	var current *autoscalingv2.MetricValueStatus
	switch {
	case m.Type == autoscalingv2.ExternalMetricSourceType && m.External != nil:
		if now.External != nil {
			current = &now.External.Current
		}
		return valueOrAverage(&m.External.Target, current)
	case m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil:
		if now.Object != nil {
			current = &now.Object.Current
		}
		return valueOrAverage(&m.Object.Target, current)
	case m.Type == autoscalingv2.PodsMetricSourceType && m.Pods != nil:
		if now.Pods != nil {
			current = &now.Pods.Current
		}
		return average(current) + "/" + amount(m.Pods.Target.AverageValue)
	case m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil:
		if now.Resource != nil {
			current = &now.Resource.Current
		}
		return string(m.Resource.Name) + ": " + averageOrUse(&m.Resource.Target, current)
	case m.Type == autoscalingv2.ContainerResourceMetricSourceType && m.ContainerResource != nil:
		if now.ContainerResource != nil {
			current = &now.ContainerResource.Current
		}
		return string(m.ContainerResource.Name) + ": " + averageOrUse(&m.ContainerResource.Target, current)
	}
	return "<unknown type>"
}

func valueOrAverage(wanted *autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus) string {
	if wanted.AverageValue != nil {
		return average(current) + "/" + amount(wanted.AverageValue) + " (avg)"
	}
	value := unknown
	if current != nil {
		value = amount(current.Value)
	}
	return value + "/" + amount(wanted.Value)
}

func averageOrUse(wanted *autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus) string {
	if wanted.AverageValue != nil {
		return average(current) + "/" + amount(wanted.AverageValue)
	}
	use, wish := unknown, "<auto>"
	if current != nil && current.AverageUtilization != nil {
		use = fmt.Sprintf("%d%%", *current.AverageUtilization)
	}
	if wanted.AverageUtilization != nil {
		wish = fmt.Sprintf("%d%%", *wanted.AverageUtilization)
	}
	return use + "/" + wish
}

func average(current *autoscalingv2.MetricValueStatus) string {
	if current == nil {
		return unknown
	}
	return amount(current.AverageValue)
}

func amount(q *resource.Quantity) string {
	if q == nil {
		return unknown
	}
	return q.String()
}

// ScaleColumns is how the scale of any workload is shown.
func ScaleColumns() Printer {
	p := show(func(s *autoscalingv1.Scale, now time.Time) []any {
		return []any{s.Name, int64(s.Spec.Replicas), int64(s.Status.Replicas), ageOf(s, now)}
	}, name(), number("Desired", autoscalingv1.ScaleSpec{}.SwaggerDoc()["replicas"]),
		number("Available", autoscalingv1.ScaleStatus{}.SwaggerDoc()["replicas"]), age())
	p.columns[0].Format = ""
	return p
}
