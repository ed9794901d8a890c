package metricsapi

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"portico.dev/pkg/extension"
)

// Group is the API group.
const Group = "metrics.k8s.io"

// Resources returns nodes and pods, in v1 and v1beta1, with the same source (KEP-5207 made v1beta1 v1 without changes). They
// only support get and list, because measurements always change: a watch would send all objects at every interval.
func Resources(source Source) []extension.Resource {
	return []extension.Resource{
		extension.Of(nodeDefinition[metricsv1.NodeMetrics]("v1"), nodesV1(source)),
		extension.Of(podDefinition[metricsv1.PodMetrics]("v1"), podsV1(source)),
		extension.Of(nodeDefinition[metricsv1beta1.NodeMetrics]("v1beta1"), nodesV1beta1(source)),
		extension.Of(podDefinition[metricsv1beta1.PodMetrics]("v1beta1"), podsV1beta1(source)),
	}
}

// provider converts the usages of a source (U) to objects of one version (T).
type provider[U, T any] struct {
	usages func(ctx context.Context, q extension.Query) ([]U, error)
	object func(*U) T
	row    func(*T) row
	last   atomic.Pointer[convertedList[U, T]]
}

// convertedList contains the objects for usages. A source returns the same slice until its next measurement, and large lists
// are requested more often than that.
type convertedList[U, T any] struct {
	usages  []U
	objects []T
}

// row is the content of a Table row.
type row struct {
	name   string
	used   corev1.ResourceList
	window time.Duration
}

// List returns the usages that q selects. The host filters the result.
func (p *provider[U, T]) List(ctx context.Context, q extension.Query) ([]T, error) {
	usages, err := p.usages(ctx, q)
	if err != nil {
		return nil, err
	}
	if last := p.last.Load(); last != nil && len(usages) == len(last.usages) && len(usages) > 0 && &usages[0] == &last.usages[0] {
		return last.objects, nil
	}
	items := make([]T, len(usages))
	for i := range usages {
		items[i] = p.object(&usages[i])
	}
	if q.Namespace == "" && q.Name == "" {
		p.last.Store(&convertedList[U, T]{usages, items})
	}
	return items, nil
}

// Columns returns metrics-server's columns: one column for each resource of the first item.
func (p *provider[U, T]) Columns(items []T) []extension.Column[T] {
	columns := []extension.Column[T]{{
		Name: "Name", Type: "string", Format: "name", Description: "Name of the resource",
		Value: func(o *T) any { return p.row(o).name },
	}}
	if len(items) > 0 {
		for _, name := range slices.Sorted(maps.Keys(p.row(&items[0]).used)) {
			columns = append(columns, extension.Column[T]{
				Name: string(name), Type: "string", Format: "quantity",
				Value: func(o *T) any { used := p.row(o).used[name]; return used.String() },
			})
		}
	}
	return append(columns, extension.Column[T]{
		Name: "Window", Type: "string", Format: "duration",
		Value: func(o *T) any { return p.row(o).window.String() },
	})
}

func objectMeta(namespace, name string, labels map[string]string, s Span) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, CreationTimestamp: metav1.NewTime(s.Timestamp)}
}

func (s Span) window() metav1.Duration {
	return metav1.Duration{Duration: s.Window.Round(time.Millisecond)}
}

func (u Usage) quantities() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(u.Cores*1e9), resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(int64(u.WorkingSet), resource.BinarySI),
	}
}

const metadataDocs = "Standard object's metadata. " +
	"More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"

const usageDocs = "by resource name: cpu in cores, as the average over the window, " +
	"and memory in bytes, as the working set at its end."

const (
	timestampDocs = "The end of the time interval [timestamp-window, timestamp] from which the metrics were collected."
	windowDocs    = "The length of the time interval [timestamp-window, timestamp] from which the metrics were collected."
)

func nodeDefinition[T any](version string) extension.Definition[T] {
	return extension.Definition[T]{
		Group: Group, Version: version, Plural: "nodes", Kind: "NodeMetrics",
		Docs: map[string]string{
			"":          "NodeMetrics sets resource usage metrics of a node.",
			"metadata":  metadataDocs,
			"timestamp": timestampDocs,
			"window":    windowDocs,
			"usage":     "What the node used " + usageDocs,
		},
	}
}

func nodesV1(source Source) *provider[NodeUsage, metricsv1.NodeMetrics] {
	return &provider[NodeUsage, metricsv1.NodeMetrics]{
		usages: source.Nodes,
		object: nodeObject,
		row:    func(o *metricsv1.NodeMetrics) row { return row{o.Name, o.Usage, o.Window.Duration} },
	}
}

func nodesV1beta1(source Source) *provider[NodeUsage, metricsv1beta1.NodeMetrics] {
	return &provider[NodeUsage, metricsv1beta1.NodeMetrics]{
		usages: source.Nodes,
		object: func(u *NodeUsage) metricsv1beta1.NodeMetrics { return metricsv1beta1.NodeMetrics(nodeObject(u)) },
		row:    func(o *metricsv1beta1.NodeMetrics) row { return row{o.Name, o.Usage, o.Window.Duration} },
	}
}

func nodeObject(u *NodeUsage) metricsv1.NodeMetrics {
	return metricsv1.NodeMetrics{
		ObjectMeta: objectMeta("", u.Name, u.Labels, u.Span),
		Timestamp:  metav1.NewTime(u.Timestamp),
		Window:     u.window(),
		Usage:      u.quantities(),
	}
}

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

// podsV1beta1 differs from podsV1 only in the Go types, which cannot be converted because they contain a type of their
// version.
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

// add returns the sum of usages of a pod's containers, as in kubectl top.
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
