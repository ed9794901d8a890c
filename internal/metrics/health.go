package metrics

import "github.com/prometheus/client_golang/prometheus"

// HealthChecks holds the metrics of /metrics/slis, the results of health checks.
type HealthChecks struct {
	// Result is kubernetes_healthcheck.
	Result *prometheus.GaugeVec
	// Total is kubernetes_healthchecks_total.
	Total *prometheus.CounterVec
}

// NewHealthChecks registers the metrics on reg, which is not the registry of /metrics.
func NewHealthChecks(reg prometheus.Registerer) *HealthChecks {
	return &HealthChecks{
		Result: newGaugeVec(reg, "kubernetes_healthcheck",
			"What came of a health check, when it was asked last: 1 is success.", "name", "type"),
		Total: newCounterVec(reg, "kubernetes_healthchecks_total",
			"Times that health checks were asked, by status: success or error.", "name", "type", "status"),
	}
}

// Count records a health check. kind is the requested endpoint, for example livez.
func (h *HealthChecks) Count(name, kind string, failed bool) {
	result, status := 1.0, "success"
	if failed {
		result, status = 0, "error"
	}
	h.Result.WithLabelValues(name, kind).Set(result)
	h.Total.WithLabelValues(name, kind, status).Inc()
}
