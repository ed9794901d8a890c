package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Backends are the metrics of requests to extension servers. The label backend is namespace/name:port of a Service
// that an APIService names; its series go when no APIService names it any more. A nil *Backends counts nothing.
type Backends struct {
	requests  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	inFlight  *prometheus.GaugeVec
	failures  *prometheus.CounterVec
	dials     *prometheus.CounterVec
	ejections *prometheus.CounterVec
	limited   *prometheus.CounterVec
	tunnels   *prometheus.GaugeVec
	broken    *prometheus.CounterVec
}

// NewBackends registers the metrics of backends on reg.
func NewBackends(reg prometheus.Registerer) *Backends {
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		return register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help},
			append([]string{"backend"}, more...)))
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"backend"}))
	}
	return &Backends{
		requests: counter("portico_backend_answers_total",
			"Attempts that got response headers, by class of the HTTP code.", "class"),
		duration: register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "portico_backend_header_duration_seconds",
			Help:    "Time from sending an attempt to its response headers.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"backend"})),
		inFlight: gauge("portico_backend_requests_in_flight",
			"Requests that hold one of the backend's places."),
		failures: counter("portico_backend_failed_attempts_total",
			"Attempts that got no response headers, by the step that failed: dial, tls or roundtrip.", "step"),
		dials:     counter("portico_backend_connections_total", "Connections tried, by outcome.", "outcome"),
		ejections: counter("portico_backend_ejections_total", "Endpoints taken out of use for a while."),
		limited: counter("portico_backend_limited_total",
			"Requests refused because the backend held as many as it may."),
		tunnels: gauge("portico_backend_upgraded_connections", "Upgraded connections that are open."),
		broken: counter("portico_backend_broken_responses_total",
			"Responses that ended before they were complete."),
	}
}

// For returns the metrics of one backend, nil for nil.
func (b *Backends) For(name string) *Backend {
	if b == nil {
		return nil
	}
	m := &Backend{
		duration:  b.duration.WithLabelValues(name),
		inFlight:  b.inFlight.WithLabelValues(name),
		connected: b.dials.WithLabelValues(name, "made"),
		refused:   b.dials.WithLabelValues(name, "failed"),
		ejections: b.ejections.WithLabelValues(name),
		limited:   b.limited.WithLabelValues(name),
		tunnels:   b.tunnels.WithLabelValues(name),
		broken:    b.broken.WithLabelValues(name),
		failures:  make(map[string]prometheus.Counter),
	}
	for i := range m.classes {
		m.classes[i] = b.requests.WithLabelValues(name, strconv.Itoa(i+1)+"xx")
	}
	for _, step := range []string{"dial", "tls", "roundtrip"} {
		m.failures[step] = b.failures.WithLabelValues(name, step)
	}
	return m
}

// Forget removes the series of a backend.
func (b *Backends) Forget(name string) {
	if b == nil {
		return
	}
	of := prometheus.Labels{"backend": name}
	for _, v := range []*prometheus.CounterVec{b.requests, b.failures, b.dials, b.ejections, b.limited, b.broken} {
		v.DeletePartialMatch(of)
	}
	b.duration.DeletePartialMatch(of)
	b.inFlight.DeletePartialMatch(of)
	b.tunnels.DeletePartialMatch(of)
}

// Backend is the metrics of one backend, resolved once so that a request costs no look-up. A nil *Backend counts
// nothing.
type Backend struct {
	classes                    [5]prometheus.Counter
	duration                   prometheus.Observer
	inFlight, tunnels          prometheus.Gauge
	failures                   map[string]prometheus.Counter
	connected, refused         prometheus.Counter
	ejections, limited, broken prometheus.Counter
}

// Answered counts response headers.
func (b *Backend) Answered(code int, after time.Duration) {
	if b == nil {
		return
	}
	if class := code/100 - 1; class >= 0 && class < len(b.classes) {
		b.classes[class].Inc()
	}
	b.duration.Observe(after.Seconds())
}

// Failed counts an attempt without response headers.
func (b *Backend) Failed(step string) {
	if b == nil {
		return
	}
	if c, ok := b.failures[step]; ok {
		c.Inc()
	}
}

// Dialled counts a connection attempt.
func (b *Backend) Dialled(ok bool) {
	switch {
	case b == nil:
	case ok:
		b.connected.Inc()
	default:
		b.refused.Inc()
	}
}

// Ejected counts an endpoint taken out of use.
func (b *Backend) Ejected() {
	if b != nil {
		b.ejections.Inc()
	}
}

// Limited counts a request refused for want of a place.
func (b *Backend) Limited() {
	if b != nil {
		b.limited.Inc()
	}
}

// InFlight adds to the requests that hold a place.
func (b *Backend) InFlight(n int) {
	if b != nil {
		b.inFlight.Add(float64(n))
	}
}

// Tunnels adds to the upgraded connections.
func (b *Backend) Tunnels(n int) {
	if b != nil {
		b.tunnels.Add(float64(n))
	}
}

// Broken counts a response that ended too early.
func (b *Backend) Broken() {
	if b != nil {
		b.broken.Inc()
	}
}
