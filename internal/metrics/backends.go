package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Backends are the metrics of requests to extension servers. The label backend is namespace/name:port of a Service
// that an APIService names; its series go when no APIService names it any more. A nil *Backends counts nothing.
//
// A thousand backends have fifteen thousand series. Kept as the library keeps them, they take ten times as much memory as
// the counts themselves; so the counts are kept (Backend), and become series when somebody reads them.
type Backends struct {
	requests, duration, inFlight, failures, dials, ejections, limited, tunnels, broken *prometheus.Desc

	mu  sync.RWMutex // protects of
	of  map[string]*Backend
	all []*prometheus.Desc
}

// NewBackends registers the metrics of backends on reg.
func NewBackends(reg prometheus.Registerer) *Backends {
	b := &Backends{of: make(map[string]*Backend)}
	desc := func(name, help string, more ...string) *prometheus.Desc {
		d := prometheus.NewDesc(name, help, append([]string{"backend"}, more...), nil)
		b.all = append(b.all, d)
		return d
	}
	b.requests = desc("portico_backend_answers_total",
		"Attempts that got response headers, by class of the HTTP code.", "class")
	b.duration = desc("portico_backend_header_duration_seconds",
		"Time from sending an attempt to its response headers.")
	b.inFlight = desc("portico_backend_requests_in_flight",
		"Requests that hold one of the backend's places.")
	b.failures = desc("portico_backend_failed_attempts_total",
		"Attempts that got no response headers, by the step that failed: dial, tls or roundtrip.", "step")
	b.dials = desc("portico_backend_connections_total", "Connections tried, by outcome.", "outcome")
	b.ejections = desc("portico_backend_ejections_total", "Endpoints taken out of use for a while.")
	b.limited = desc("portico_backend_limited_total",
		"Requests refused because the backend held as many as it may.")
	b.tunnels = desc("portico_backend_upgraded_connections", "Upgraded connections that are open.")
	b.broken = desc("portico_backend_broken_responses_total",
		"Responses that ended before they were complete.")
	return register(reg, b)
}

// For returns the metrics of one backend, nil for nil.
func (b *Backends) For(name string) *Backend {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of[name] == nil {
		b.of[name] = &Backend{}
	}
	return b.of[name]
}

// Forget removes the series of a backend.
func (b *Backends) Forget(name string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.of, name)
}

// Describe implements prometheus.Collector.
func (b *Backends) Describe(to chan<- *prometheus.Desc) {
	for _, d := range b.all {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (b *Backends) Collect(to chan<- prometheus.Metric) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for name, one := range b.of {
		b.collect(to, name, one)
	}
}

func (b *Backends) collect(to chan<- prometheus.Metric, name string, one *Backend) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, n int64, more ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, float64(n), append([]string{name}, more...)...)
	}
	for i := range one.classes {
		send(b.requests, prometheus.CounterValue, one.classes[i].Load(), classNames[i])
	}
	for i := range one.failures {
		send(b.failures, prometheus.CounterValue, one.failures[i].Load(), steps[i])
	}
	send(b.dials, prometheus.CounterValue, one.connected.Load(), "made")
	send(b.dials, prometheus.CounterValue, one.refused.Load(), "failed")
	send(b.ejections, prometheus.CounterValue, one.ejections.Load())
	send(b.limited, prometheus.CounterValue, one.limited.Load())
	send(b.broken, prometheus.CounterValue, one.broken.Load())
	send(b.inFlight, prometheus.GaugeValue, one.inFlight.Load())
	send(b.tunnels, prometheus.GaugeValue, one.tunnels.Load())
	count, sum, buckets := one.duration.read()
	to <- prometheus.MustNewConstHistogram(b.duration, count, sum, buckets, name)
}
