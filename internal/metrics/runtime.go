package metrics

import (
	"regexp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// runtimeMetrics matches the names in runtime/metrics that are served in addition to client_golang's base set: the CPU
// time of garbage collection, and the time that goroutines wait for a processor.
var runtimeMetrics = regexp.MustCompile(`^/(cpu/classes/gc/total|sched/latencies):`)

// NewProcess registers the metrics of the Go runtime and of the process, go_* and process_*, on reg.
func NewProcess(reg prometheus.Registerer) {
	reg.MustRegister(
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{Matcher: runtimeMetrics})),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// describesProcess reports whether a metric describes the Go runtime or the process.
func describesProcess(name string) bool {
	return strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_")
}
