package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"portico.dev/internal/metrics"
)

// writeMetrics lists the metrics that each program registers.
func writeMetrics(p *page) error {
	p.heading(1, "Metrics")
	p.text(`Metrics of each program at /metrics, by name. Names are kube-apiserver's where it has the metric; the rest begin with
portico_ or extserver_. Beside these both programs serve the Go runtime's and the process's (go_*, process_*), and
the front door those of the Kubernetes libraries for the groups it serves itself (apiserver_*, etcd_*, workqueue_* and the like),
as kube-apiserver does. Some of these need --all-metrics: see [Metrics of the front door](../metrics.md#metrics-of-the-front-door).
The label backend is NAMESPACE/NAME:PORT for the Service of an APIService, and cluster/NAME for a [Cluster](../fleet.md).`)
	var aggregator, gateway, health, extserver collectors
	metrics.New(&aggregator).Auth.Trust("", func() error { return nil })
	metrics.NewReplicas(&aggregator, nil, nil, nil)
	metrics.NewEtcdServers(&aggregator, func() map[string]bool { return nil })
	metrics.NewStateSnapshot(&aggregator, nil, nil)
	metrics.NewClusterStates(&aggregator, nil)
	metrics.NewGateway(&gateway)
	metrics.NewHealthChecks(&health)
	metrics.NewRequests(&extserver)
	metrics.NewSources(&extserver, func() map[string]bool { return nil })
	for _, program := range []struct {
		name string
		of   collectors
	}{{"aggregator", aggregator}, {"aggregator gateway, beside those", gateway}, {"aggregator and aggregator gateway, at /metrics/slis", health}, {"extserver", extserver}} {
		p.heading(2, program.name)
		rows, err := program.of.rows()
		if err != nil {
			return err
		}
		p.table([]string{"metric", "type", "labels", "what it counts"}, rows)
	}
	return nil
}

// collectors is a registry that keeps what is registered.
type collectors []prometheus.Collector

func (c *collectors) Register(one prometheus.Collector) error   { *c = append(*c, one); return nil }
func (c *collectors) MustRegister(some ...prometheus.Collector) { *c = append(*c, some...) }
func (c *collectors) Unregister(prometheus.Collector) bool      { return false }

// descText matches what prometheus.Desc.String writes. A Desc has no accessors.
var descText = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)", unit: "[^"]*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

func (c collectors) rows() ([][]string, error) {
	var rows [][]string
	for _, one := range c {
		described := make(chan *prometheus.Desc)
		go func() { one.Describe(described); close(described) }()
		for desc := range described {
			m := descText.FindStringSubmatch(desc.String())
			if m == nil {
				return nil, fmt.Errorf("cannot read %s", desc)
			}
			m = m[1:]
			var labels []string
			for pair := range strings.SplitSeq(m[2], ",") {
				if name, _, ok := strings.Cut(pair, "="); ok {
					labels = append(labels, name)
				}
			}
			for label := range strings.SplitSeq(m[3], ",") {
				if label = strings.TrimSpace(label); label != "" {
					labels = append(labels, label)
				}
			}
			rows = append(rows, []string{code(m[0]), kind(one, m[0]), code(strings.Join(labels, ", ")), prose(strings.ReplaceAll(m[1], `\"`, `"`))})
		}
	}
	slices.SortFunc(rows, func(a, b []string) int { return cmp.Compare(a[0], b[0]) })
	return rows, nil
}

// kind is the type of a metric: by its collector, and for those that collect at the scrape by its name, as Prometheus'
// naming rules have it.
func kind(c prometheus.Collector, name string) string {
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec, prometheus.Gauge: // before Counter, whose methods a Gauge has too
		return "gauge"
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	case prometheus.Counter:
		return "counter"
	}
	switch {
	case strings.HasSuffix(name, "_total"):
		return "counter"
	case strings.HasSuffix(name, "_duration_seconds"):
		return "histogram"
	}
	return "gauge"
}
