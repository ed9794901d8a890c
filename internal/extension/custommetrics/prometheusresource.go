package custommetrics

import (
	"fmt"
	"slices"

	"portico.dev/internal/extension/metricsapi"
)

// ResourceQueries are a rule file's queries for metrics.k8s.io, for promsource.Config.Queries; its Window is r.Window.
func ResourceQueries(file string, r *ResourceRules) (metricsapi.Queries, error) {
	cpu, err := r.CPU.Plain(WellKnown())
	if err != nil {
		return metricsapi.Queries{}, fmt.Errorf("%s:%d: resourceRules.cpu: %w", file, r.Line, err)
	}
	memory, err := r.Memory.Plain(WellKnown())
	if err != nil {
		return metricsapi.Queries{}, fmt.Errorf("%s:%d: resourceRules.memory: %w", file, r.Line, err)
	}
	var labels []string
	for _, label := range []string{cpu.NodeLabel, memory.NodeLabel} {
		if label != "" && !slices.Contains(labels, label) {
			labels = append(labels, label)
		}
	}
	return metricsapi.Queries{
		NodeCPU: cpu.Node, NodeMemory: memory.Node, ContainerCPU: cpu.Container, ContainerMemory: memory.Container, NodeLabels: labels,
	}, nil
}
