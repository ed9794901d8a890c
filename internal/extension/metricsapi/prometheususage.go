package metricsapi

import (
	"math"
	"net"
	"strings"
	"time"

	"portico.dev/internal/extension/prometheus"
)

// nodeUsages joins the CPU and the memory of nodes. A node that lacks one is left out.
func nodeUsages(cpu, memory []prometheus.Sample, labels []string, window time.Duration) []NodeUsage {
	bytes := map[string]float64{}
	for _, s := range memory {
		if name := nodeName(s.Metric, labels); name != "" && sound(s.Value) {
			bytes[name] = s.Value
		}
	}
	var out []NodeUsage
	for _, s := range cpu {
		name := nodeName(s.Metric, labels)
		set, ok := bytes[name]
		if !ok || !sound(s.Value) {
			continue
		}
		out = append(out, NodeUsage{
			Name:  name,
			Usage: Usage{Cores: s.Value, WorkingSet: uint64(set)},
			Span:  Span{Timestamp: s.Timestamp, Window: window},
		})
	}
	return out
}

// nodeName is the first label that is there, without a port. Node names are in lower case.
func nodeName(metric map[string]string, labels []string) string {
	for _, label := range labels {
		name := metric[label]
		if name == "" {
			continue
		}
		if host, _, err := net.SplitHostPort(name); err == nil {
			name = host
		}
		return strings.ToLower(name)
	}
	return ""
}

type containerKey struct {
	PodKey
	container string
}

func containerOf(metric map[string]string) (containerKey, bool) {
	k := containerKey{PodKey{Namespace: metric["namespace"], Name: metric["pod"]}, metric["container"]}
	return k, k.Namespace != "" && k.Name != "" && k.container != ""
}

// podUsages joins the CPU and the memory of containers. A pod with a container that has memory and no rate yet is left
// out: an autoscaler would take the rest of it for the whole.
func podUsages(cpu, memory []prometheus.Sample, window time.Duration) []PodUsage {
	cores := map[containerKey]prometheus.Sample{}
	for _, s := range cpu {
		if k, ok := containerOf(s.Metric); ok && sound(s.Value) {
			cores[k] = s
		}
	}
	pods := map[PodKey]*PodUsage{}
	halves := map[PodKey]bool{}
	for _, s := range memory {
		k, ok := containerOf(s.Metric)
		if !ok || !sound(s.Value) {
			continue
		}
		rate, ok := cores[k]
		if !ok {
			halves[k.PodKey] = true
			continue
		}
		u := pods[k.PodKey]
		if u == nil {
			u = &PodUsage{Namespace: k.Namespace, Name: k.Name, Span: Span{Timestamp: rate.Timestamp, Window: window}}
			pods[k.PodKey] = u
		}
		u.Containers = append(u.Containers, ContainerUsage{
			Name: k.container, Usage: Usage{Cores: rate.Value, WorkingSet: uint64(s.Value)},
		})
	}
	out := make([]PodUsage, 0, len(pods))
	for key, u := range pods {
		if !halves[key] {
			out = append(out, *u)
		}
	}
	return out
}

// sound tells numbers from NaN, infinities and what no counter can give.
func sound(v float64) bool { return !math.IsNaN(v) && v >= 0 && v < 1<<62 }
