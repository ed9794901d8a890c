package metricsapi

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"portico.dev/internal/extension"
)

// Group is the API group.
const Group = "metrics.k8s.io"

// NodeUsage is what one node used during a window.
type NodeUsage struct {
	Name string
	// Labels are those of the Node object, by which clients select.
	Labels map[string]string
	// Cores and WorkingSet (bytes) are the usage, Timestamp the end of the window.
	Cores      float64
	WorkingSet uint64
	Timestamp  time.Time
	Window     time.Duration
}

// Source tells what the nodes use now. No nodes, and no error, is the answer while nothing has been measured yet.
type Source func(ctx context.Context) ([]NodeUsage, error)

// Nodes are the resources nodes.v1 and nodes.v1beta1: one source, two versions (KEP-5207 made v1 of v1beta1
// unchanged). Only get and list are offered: a measurement is never the same twice, so a watch would tell everybody
// everything at every tick.
func Nodes(source Source) []extension.Resource {
	return []extension.Resource{
		extension.Of(nodeDefinition[metricsv1.NodeMetrics]("v1"), nodesV1{source}),
		extension.Of(nodeDefinition[metricsv1beta1.NodeMetrics]("v1beta1"), nodesV1beta1{nodesV1{source}}),
	}
}

func nodeDefinition[T any](version string) extension.Definition[T] {
	return extension.Definition[T]{
		Group: Group, Version: version, Plural: "nodes", Kind: "NodeMetrics", Docs: nodeDocs,
	}
}

var nodeDocs = map[string]string{
	"": "NodeMetrics sets resource usage metrics of a node.",
	"metadata": "Standard object's metadata. " +
		"More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
	"timestamp": "The end of the time interval [timestamp-window, timestamp] from which the metrics were collected.",
	"window":    "The length of the time interval [timestamp-window, timestamp] from which the metrics were collected.",
	"usage": "What the node used by resource name: cpu in cores, as the average over the window, " +
		"and memory in bytes, as the working set at its end.",
}

type nodesV1 struct{ source Source }

// List tells the usage of every node; the host selects.
func (n nodesV1) List(ctx context.Context, _ extension.Query) ([]metricsv1.NodeMetrics, error) {
	usages, err := n.source(ctx)
	if err != nil {
		return nil, err
	}
	items := make([]metricsv1.NodeMetrics, len(usages))
	for i, u := range usages {
		items[i] = metricsv1.NodeMetrics{
			ObjectMeta: metav1.ObjectMeta{Name: u.Name, Labels: u.Labels, CreationTimestamp: metav1.NewTime(u.Timestamp)},
			Timestamp:  metav1.NewTime(u.Timestamp),
			Window:     metav1.Duration{Duration: u.Window.Round(time.Millisecond)},
			Usage:      quantities(u),
		}
	}
	return items, nil
}

func quantities(u NodeUsage) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(u.Cores*1e9), resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(int64(u.WorkingSet), resource.BinarySI),
	}
}

// Columns are metrics-server's: a column for each resource that the first item has.
func (n nodesV1) Columns(items []metricsv1.NodeMetrics) []extension.Column[metricsv1.NodeMetrics] {
	return nodeColumns(items, func(o *metricsv1.NodeMetrics) *metricsv1.NodeMetrics { return o })
}

type nodesV1beta1 struct{ v1 nodesV1 }

// List is v1's list under the other version's type; the fields are the same.
func (n nodesV1beta1) List(ctx context.Context, q extension.Query) ([]metricsv1beta1.NodeMetrics, error) {
	items, err := n.v1.List(ctx, q)
	if err != nil {
		return nil, err
	}
	out := make([]metricsv1beta1.NodeMetrics, len(items))
	for i := range items {
		out[i] = metricsv1beta1.NodeMetrics(items[i])
	}
	return out, nil
}

// Columns are those of v1.
func (n nodesV1beta1) Columns(items []metricsv1beta1.NodeMetrics) []extension.Column[metricsv1beta1.NodeMetrics] {
	return nodeColumns(items, func(o *metricsv1beta1.NodeMetrics) *metricsv1.NodeMetrics { return (*metricsv1.NodeMetrics)(o) })
}

func nodeColumns[T any](items []T, v1 func(*T) *metricsv1.NodeMetrics) []extension.Column[T] {
	columns := []extension.Column[T]{{
		Name: "Name", Type: "string", Format: "name", Description: "Name of the resource",
		Value: func(o *T) any { return v1(o).Name },
	}}
	if len(items) > 0 {
		for _, name := range slices.Sorted(maps.Keys(v1(&items[0]).Usage)) {
			columns = append(columns, extension.Column[T]{
				Name: string(name), Type: "string", Format: "quantity",
				Value: func(o *T) any { used := v1(o).Usage[name]; return used.String() },
			})
		}
	}
	return append(columns, extension.Column[T]{
		Name: "Window", Type: "string", Format: "duration",
		Value: func(o *T) any { return v1(o).Window.Duration.String() },
	})
}
