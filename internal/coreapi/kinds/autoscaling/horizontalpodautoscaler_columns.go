package autoscaling

import (
	"fmt"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"

	"portico.dev/internal/coreapi/columns"
)

// metricsShown is the maximum number of metrics in a cell. Further metrics are only counted.
const metricsShown = 2

func horizontalPodAutoscalerColumns() columns.Printer {
	spec, status := autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc(), autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()
	return columns.Show(func(a *autoscalingv2.HorizontalPodAutoscaler, now time.Time) []any {
		least := columns.Unset
		if a.Spec.MinReplicas != nil {
			least = fmt.Sprint(*a.Spec.MinReplicas)
		}
		return []any{
			a.Name, a.Spec.ScaleTargetRef.Kind + "/" + a.Spec.ScaleTargetRef.Name, targets(a), least, int64(a.Spec.MaxReplicas),
			int64(a.Status.CurrentReplicas), columns.AgeOf(a, now),
		}
	}, columns.Name(), columns.Text("Reference", spec["scaleTargetRef"]), columns.Text("Targets", spec["metrics"]), columns.Text("MinPods", spec["minReplicas"]),
		columns.Text("MaxPods", spec["maxReplicas"]), columns.Text("Replicas", status["currentReplicas"]), columns.Age())
}

// targets pairs each metric with the status at the same index, as current/target.
func targets(a *autoscalingv2.HorizontalPodAutoscaler) string {
	if len(a.Spec.Metrics) == 0 {
		return columns.None
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

// target does not assume that the member for the metric's type is set: a stored object may be older than validation.
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
	value := columns.Unknown
	if current != nil {
		value = amount(current.Value)
	}
	return value + "/" + amount(wanted.Value)
}

func averageOrUse(wanted *autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus) string {
	if wanted.AverageValue != nil {
		return average(current) + "/" + amount(wanted.AverageValue)
	}
	use, wish := columns.Unknown, "<auto>"
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
		return columns.Unknown
	}
	return amount(current.AverageValue)
}

func amount(q *resource.Quantity) string {
	if q == nil {
		return columns.Unknown
	}
	return q.String()
}
