package metricsapi

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"portico.dev/internal/extension"
)

func podDefinition[T any](version string) extension.Definition[T] {
	return extension.Definition[T]{
		Group: Group, Version: version, Plural: "pods", Kind: "PodMetrics", Namespaced: true,
		Docs: map[string]string{
			"":                 "PodMetrics sets resource usage metrics of a pod.",
			"metadata":         metadataDocs,
			"timestamp":        timestampDocs,
			"window":           windowDocs,
			"containers":       "Metrics for all containers, collected within the same time window.",
			"containers.name":  "Container name corresponding to the one from pod.spec.containers.",
			"containers.usage": "What the container used " + usageDocs,
		},
	}
}

func podsV1(source Source) *provider[PodUsage, metricsv1.PodMetrics] {
	return &provider[PodUsage, metricsv1.PodMetrics]{
		usages: source.Pods,
		object: func(u *PodUsage) metricsv1.PodMetrics {
			o := metricsv1.PodMetrics{
				ObjectMeta: objectMeta(u.Namespace, u.Name, u.Labels, u.Span),
				Timestamp:  metav1.NewTime(u.Timestamp),
				Window:     u.window(),
				Containers: make([]metricsv1.ContainerMetrics, len(u.Containers)),
			}
			for i, c := range u.Containers {
				o.Containers[i] = metricsv1.ContainerMetrics{Name: c.Name, Usage: c.quantities()}
			}
			return o
		},
		row: func(o *metricsv1.PodMetrics) row {
			var used corev1.ResourceList
			for i := range o.Containers {
				used = add(used, o.Containers[i].Usage)
			}
			return row{o.Name, used, o.Window.Duration}
		},
	}
}

// podsV1beta1 differs from podsV1 in the Go types alone, which nest a type of their own version and so do not convert.
func podsV1beta1(source Source) *provider[PodUsage, metricsv1beta1.PodMetrics] {
	return &provider[PodUsage, metricsv1beta1.PodMetrics]{
		usages: source.Pods,
		object: func(u *PodUsage) metricsv1beta1.PodMetrics {
			o := metricsv1beta1.PodMetrics{
				ObjectMeta: objectMeta(u.Namespace, u.Name, u.Labels, u.Span),
				Timestamp:  metav1.NewTime(u.Timestamp),
				Window:     u.window(),
				Containers: make([]metricsv1beta1.ContainerMetrics, len(u.Containers)),
			}
			for i, c := range u.Containers {
				o.Containers[i] = metricsv1beta1.ContainerMetrics{Name: c.Name, Usage: c.quantities()}
			}
			return o
		},
		row: func(o *metricsv1beta1.PodMetrics) row {
			var used corev1.ResourceList
			for i := range o.Containers {
				used = add(used, o.Containers[i].Usage)
			}
			return row{o.Name, used, o.Window.Duration}
		},
	}
}

// add is what a pod used: the sum over its containers, as kubectl top shows it.
func add(sum, more corev1.ResourceList) corev1.ResourceList {
	if sum == nil {
		return more.DeepCopy()
	}
	for name, quantity := range more {
		total := sum[name]
		total.Add(quantity)
		sum[name] = total
	}
	return sum
}
