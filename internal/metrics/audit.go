package metrics

import "github.com/prometheus/client_golang/prometheus"

// Audit are the metrics of the audit sinks. apiserver_audit_level_total and apiserver_audit_event_total are the library's.
type Audit struct {
	// Written is portico_audit_events_written_total by sink: log or webhook.
	Written *prometheus.CounterVec
	// Dropped is portico_audit_events_dropped_total by sink: events that were lost, each counted once.
	Dropped *prometheus.CounterVec
}

// NewAudit registers the metrics of the audit sinks on reg.
func NewAudit(reg prometheus.Registerer) *Audit {
	return &Audit{
		Written: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portico_audit_events_written_total",
			Help: "Audit events that a sink has taken.",
		}, []string{"sink"})),
		Dropped: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portico_audit_events_dropped_total",
			Help: "Audit events that were lost: the sink failed, or its queue was full.",
		}, []string{"sink"})),
	}
}
