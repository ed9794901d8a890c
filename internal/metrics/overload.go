package metrics

import "github.com/prometheus/client_golang/prometheus"

// Overload is what is done when memory runs short.
type Overload struct {
	// Limit, Used and Level are portico_memory_limit_bytes, portico_memory_used_bytes and portico_overload_level.
	Limit, Used, Level prometheus.Gauge
	// Shed is portico_overload_shed_requests_total by reason: memory (503 after authentication), refused (before it), bodies
	// (large bodies are being read already).
	Shed *prometheus.CounterVec
	// Closed is portico_overload_closed_connections_total by reason: idle, largest, handshake.
	Closed *prometheus.CounterVec
}

// NewOverload registers the metrics of shedding on reg.
func NewOverload(reg prometheus.Registerer) *Overload {
	gauge := func(name, help string) prometheus.Gauge {
		return register(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
	}
	return &Overload{
		Limit: gauge("portico_memory_limit_bytes", "Memory that load is shed by. 0: there is no limit."),
		Used:  gauge("portico_memory_used_bytes", "Memory in use for certain, without garbage that is not collected yet."),
		Level: gauge("portico_overload_level", "How short memory is: 0 normal, 1 shedding, 2 critical, 3 exhausted."),
		Shed: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portico_overload_shed_requests_total",
			Help: "Requests that were refused to save memory, by reason: memory, refused (before authentication), bodies.",
		}, []string{"reason"})),
		Closed: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portico_overload_closed_connections_total",
			Help: "Connections that were closed to save memory, by reason: idle, largest, handshake.",
		}, []string{"reason"})),
	}
}
