package metricsapi

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// windowToken stands in queries for the length of the window.
const windowToken = "$window"

// Queries are PromQL. In each, $window becomes the configured window. A series without the label that names what it
// describes is passed over.
type Queries struct {
	// NodeCPU is in cores, NodeMemory in bytes of working set, one series for each node.
	NodeCPU, NodeMemory string
	// ContainerCPU and ContainerMemory give one series for each container, with the labels namespace, pod, container.
	ContainerCPU, ContainerMemory string
	// NodeLabels name the node, the first that a series has. A port after it is cut off. Default: node, nodename,
	// kubernetes_io_hostname, instance.
	NodeLabels []string
}

// NodeExporterQueries measure nodes by node_exporter, and containers by the kubelet's cAdvisor. What counts as work and
// as memory is what it is for the host source. Nodes are joined with what uname calls them: an instance is mostly an
// address, and no Node has that for a name.
func NodeExporterQueries() Queries {
	const called = ` * on (job, instance) group_left (nodename) node_uname_info`
	return Queries{
		NodeCPU:         `sum by (node, nodename, instance) (rate(node_cpu_seconds_total{mode=~"user|nice|system|irq|softirq"}[$window])` + called + `)`,
		NodeMemory:      `sum by (node, nodename, instance) ((node_memory_MemTotal_bytes - node_memory_MemAvailable_bytes)` + called + `)`,
		ContainerCPU:    `sum by (namespace, pod, container) (rate(container_cpu_usage_seconds_total{container!="",container!="POD",pod!=""}[$window]))`,
		ContainerMemory: `sum by (namespace, pod, container) (container_memory_working_set_bytes{container!="",container!="POD",pod!=""})`,
	}
}

// CAdvisorQueries measure nodes by the root cgroup that cAdvisor tells of, as prometheus-adapter's sample does.
func CAdvisorQueries() Queries {
	q := NodeExporterQueries()
	q.NodeCPU = `sum by (node, kubernetes_io_hostname, instance) (rate(container_cpu_usage_seconds_total{id="/"}[$window]))`
	q.NodeMemory = `sum by (node, kubernetes_io_hostname, instance) (container_memory_working_set_bytes{id="/"})`
	return q
}

func (q Queries) withDefaults() (Queries, error) {
	defaults := NodeExporterQueries()
	for _, pair := range []struct{ given, standard *string }{
		{&q.NodeCPU, &defaults.NodeCPU}, {&q.NodeMemory, &defaults.NodeMemory},
		{&q.ContainerCPU, &defaults.ContainerCPU}, {&q.ContainerMemory, &defaults.ContainerMemory},
	} {
		if strings.TrimSpace(*pair.given) == "" {
			*pair.given = *pair.standard
		}
	}
	if len(q.NodeLabels) == 0 {
		q.NodeLabels = []string{"node", "nodename", "kubernetes_io_hostname", "instance"}
	}
	for _, label := range q.NodeLabels {
		if label == "" {
			return q, errors.New("prometheus source: an empty label cannot name a node")
		}
	}
	return q, nil
}

// promDuration is d as PromQL writes it, in whole seconds.
func promDuration(d time.Duration) string { return fmt.Sprintf("%ds", int64(d/time.Second)) }

func (q Queries) over(window time.Duration) Queries {
	for _, text := range []*string{&q.NodeCPU, &q.NodeMemory, &q.ContainerCPU, &q.ContainerMemory} {
		*text = strings.ReplaceAll(*text, windowToken, promDuration(window))
	}
	return q
}
