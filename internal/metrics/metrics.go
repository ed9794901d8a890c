// Package metrics defines the metrics of the front door and the extension host and registers them on a given
// registry.
//
// Metrics that exist in kube-apiserver have its names, so that existing dashboards and alerts work. Other names begin
// with portico_. Labels are bounded: a name that clients can choose never becomes a label value.
package metrics

import "github.com/prometheus/client_golang/prometheus"

// Metrics holds the metrics of the front door by component.
type Metrics struct {
	Requests      *Requests
	Availability  *Availability
	Backends      *Backends
	Clusters      *Clusters
	Peers         *Peers
	Egress        *Egress
	SharedReads   *SharedReads
	Mirror        *Mirror
	SharedWatches *SharedWatches
	Discovery     *Discovery
	OpenAPI       *OpenAPI
	Garbage       *Garbage
	Audit         *Audit
	Authorization *Authorization
	Auth          *Auth
	Fairness      *Fairness
	Backup        *Backup
	Engines       *Engines
	Overload      *Overload
	Buffered      *Buffered
	Reload        *Reload
}

// New registers all metrics on reg. It panics if reg already contains one of them.
func New(reg prometheus.Registerer) *Metrics {
	return &Metrics{
		Requests:      NewRequests(reg),
		Availability:  NewAvailability(reg),
		Backends:      NewBackends(reg),
		Clusters:      NewClusters(reg),
		Peers:         NewPeers(reg),
		Egress:        NewEgress(reg),
		SharedReads:   NewSharedReads(reg),
		Mirror:        NewMirror(reg),
		SharedWatches: NewSharedWatches(reg),
		Discovery:     NewDiscovery(reg),
		OpenAPI:       NewOpenAPI(reg),
		Garbage:       NewGarbage(reg),
		Audit:         NewAudit(reg),
		Authorization: NewAuthorization(reg),
		Auth:          NewAuth(reg),
		Fairness:      NewFairness(reg),
		Backup:        NewBackup(reg),
		Engines:       NewEngines(reg),
		Overload:      NewOverload(reg),
		Buffered:      NewBuffered(reg),
		Reload:        NewReload(reg),
	}
}

func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	reg.MustRegister(c)
	return c
}

func newCounter(reg prometheus.Registerer, name, help string) prometheus.Counter {
	return register(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

func newCounterVec(reg prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	return register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

func newGauge(reg prometheus.Registerer, name, help string) prometheus.Gauge {
	return register(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

func newGaugeVec(reg prometheus.Registerer, name, help string, labels ...string) *prometheus.GaugeVec {
	return register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

// newHistogram registers a histogram with the given buckets, or Prometheus' default buckets for nil.
func newHistogram(reg prometheus.Registerer, name, help string, buckets []float64) prometheus.Histogram {
	return register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}))
}

// newHistogramVec is like newHistogram with labels.
func newHistogramVec(reg prometheus.Registerer, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
}

// Engines reports the HTTP implementations that this process uses.
type Engines struct {
	// Info is portico_http_engine_info, always 1. Labels: side (clients or backends) and engine (portico or library).
	Info *prometheus.GaugeVec
}

// NewEngines registers the metric on reg.
func NewEngines(reg prometheus.Registerer) *Engines {
	return &Engines{Info: newGaugeVec(reg, "portico_http_engine_info",
		"Which implementation of HTTP serves clients (--http-engine) and reaches backends (--backend-engine). Always 1.", "side", "engine")}
}

// Use sets the implementations in use.
func (e *Engines) Use(clients, backends string) {
	e.Info.WithLabelValues("clients", clients).Set(1)
	e.Info.WithLabelValues("backends", backends).Set(1)
}

// sources is a collector that reports the health of several sources at a scrape: of an extension server's sources, or
// of etcd servers.
type sources struct {
	up   func() map[string]bool
	desc *prometheus.Desc
}

// NewSources registers extserver_source_up on reg. It is 1 for healthy sources and 0 for others. up is called at
// every scrape.
func NewSources(reg prometheus.Registerer, up func() map[string]bool) {
	reg.MustRegister(sources{up: up, desc: prometheus.NewDesc("extserver_source_up",
		"Whether what resources read from is well (1) or in trouble (0).", []string{"source"}, nil)})
}

// Describe implements prometheus.Collector.
func (s sources) Describe(to chan<- *prometheus.Desc) { to <- s.desc }

// Collect implements prometheus.Collector.
func (s sources) Collect(to chan<- prometheus.Metric) {
	for name, healthy := range s.up() {
		value := 0.0
		if healthy {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, value, name)
	}
}
