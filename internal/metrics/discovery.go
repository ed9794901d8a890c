package metrics

import "github.com/prometheus/client_golang/prometheus"

// Discovery are the metrics of the merged discovery documents.
type Discovery struct {
	// Aggregations is aggregator_discovery_aggregation_count_total: how often the merged document was made.
	Aggregations prometheus.Counter
	// BuildSeconds is portico_discovery_build_duration_seconds: how long that took.
	BuildSeconds prometheus.Histogram
	// Rounds is portico_discovery_rounds_total by outcome (ok, failed): asking one backend for all its group-versions.
	Rounds *prometheus.CounterVec
	// Stale is portico_discovery_stale_group_versions: how many are Stale now. Any blocks namespace deletion.
	Stale prometheus.Gauge
}

// NewDiscovery registers the metrics of discovery on reg.
func NewDiscovery(reg prometheus.Registerer) *Discovery {
	return &Discovery{
		Aggregations: register(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "aggregator_discovery_aggregation_count_total",
			Help: "Times that the merged discovery document was made.",
		})),
		BuildSeconds: register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "portico_discovery_build_duration_seconds",
			Help:    "Time to make the merged discovery documents.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8),
		})),
		Rounds: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portico_discovery_rounds_total",
			Help: "Rounds of asking one backend for the discovery of its group-versions, by outcome.",
		}, []string{"outcome"})),
		Stale: register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "portico_discovery_stale_group_versions",
			Help: "Group-versions whose resources may have changed since they were last known.",
		})),
	}
}
