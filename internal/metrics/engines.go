package metrics

import "github.com/prometheus/client_golang/prometheus"

// Engines is which implementations of HTTP this process uses.
type Engines struct {
	// Info is portico_http_engine_info, always 1. Labels: side (clients or backends) and engine (portico or library).
	Info *prometheus.GaugeVec
}

// NewEngines registers the metric on reg.
func NewEngines(reg prometheus.Registerer) *Engines {
	return &Engines{Info: register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "portico_http_engine_info",
		Help: "Which implementation of HTTP serves clients (--http-engine) and reaches backends (--backend-engine). Always 1.",
	}, []string{"side", "engine"}))}
}

// Use says which are used.
func (e *Engines) Use(clients, backends string) {
	e.Info.WithLabelValues("clients", clients).Set(1)
	e.Info.WithLabelValues("backends", backends).Set(1)
}
