package metricsapi

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"portico.dev/internal/extension"
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
