package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Requests holds the metrics of the handler chain for all requests.
type Requests struct {
	// Total is apiserver_request_total.
	Total *prometheus.CounterVec
	// Duration is apiserver_request_duration_seconds. It does not include long-running requests.
	Duration *prometheus.HistogramVec
	// SLI is apiserver_request_sli_duration_seconds: Duration minus the time in webhooks and in flow control queues.
	SLI *prometheus.HistogramVec
	// InFlight is apiserver_current_inflight_requests by request_kind: mutating or readOnly.
	InFlight *prometheus.GaugeVec
	// LongRunning is apiserver_longrunning_requests.
	LongRunning *prometheus.GaugeVec
	// Terminations is apiserver_request_terminations_total: requests ended by the server.
	Terminations *prometheus.CounterVec
	// Panics is portico_panics_total: requests with a panicking handler.
	Panics prometheus.Counter
	// Refused is portico_requests_refused_total by reason: requests refused before authorization.
	Refused *prometheus.CounterVec

	// ReadOnly and Mutating are the two series of InFlight.
	ReadOnly, Mutating prometheus.Gauge

	served seriesCache[Served, requestSeries] // has at most as many entries as the metrics have series
}

// Served holds the label values of Total, Duration and SLI for a request.
type Served struct {
	Verb, Group, Version, Resource, Subresource, Scope, Component string
	Code                                                          int
}

type requestSeries struct {
	total    prometheus.Counter
	duration prometheus.Observer
	sli      prometheus.Observer
}

// Count counts a completed request. seconds is its duration, negative for a long-running request. elsewhere is the
// part of the duration spent in webhooks and queues.
func (r *Requests) Count(s Served, seconds, elsewhere float64) {
	a, ok := r.served.find(s)
	if !ok {
		a = r.resolve(s, seconds >= 0)
	}
	a.total.Inc()
	if seconds < 0 {
		return
	}
	if a.duration == nil {
		a = r.resolve(s, true)
	}
	a.duration.Observe(seconds)
	a.sli.Observe(max(0, seconds-elsewhere))
}

// resolve looks up the series. It creates the series of Duration and SLI only if there is a value for them, because
// an empty series would be reported as zero requests.
func (r *Requests) resolve(s Served, timed bool) requestSeries {
	labels := []string{s.Verb, s.Group, s.Version, s.Resource, s.Subresource, s.Scope, s.Component, strconv.Itoa(s.Code)}
	a := requestSeries{total: r.Total.WithLabelValues(labels...)}
	if timed {
		a.duration, a.sli = r.Duration.WithLabelValues(labels[:len(labels)-1]...), r.SLI.WithLabelValues(labels[:len(labels)-1]...)
	}
	r.served.set(s, a)
	return a
}

// NewRequests registers the metrics of the handler chain on reg.
func NewRequests(reg prometheus.Registerer) *Requests {
	resource := []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}
	withCode := append(append([]string(nil), resource...), "code")
	r := &Requests{
		Total: newCounterVec(reg, "apiserver_request_total",
			"Requests by verb, group, version, resource, scope, component and HTTP code.", withCode...),
		Duration: register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_request_duration_seconds",
			Help:    "Time to answer, without long-running requests.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.5, 2, 3, 5, 10, 30, 60},
			// For Prometheus servers that request protobuf, as in kube-apiserver 1.37.
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		}, resource)),
		SLI: newHistogramVec(reg, "apiserver_request_sli_duration_seconds",
			"Time to answer, without long-running requests, and without the time in webhooks and in the queues of API Priority and Fairness.",
			// A subset of kube-apiserver's, with the bounds of Kubernetes' service level objectives: 1, 5 and 30 s.
			[]float64{0.05, 0.1, 0.2, 0.4, 0.8, 1, 2, 5, 10, 30, 60}, resource...),
		InFlight: newGaugeVec(reg, "apiserver_current_inflight_requests",
			"Requests being served, without long-running ones.", "request_kind"),
		LongRunning: newGaugeVec(reg, "apiserver_longrunning_requests",
			"Watches, logs, proxies and other long-running requests being served.", resource...),
		Terminations: newCounterVec(reg, "apiserver_request_terminations_total",
			"Requests that the server ended on its own account.", withCode...),
		Panics: newCounter(reg, "portico_panics_total", "Requests whose handler panicked."),
		Refused: newCounterVec(reg, "portico_requests_refused_total",
			"Requests turned away before they were authorized, by reason.", "reason"),
	}
	r.ReadOnly, r.Mutating = r.InFlight.WithLabelValues("readOnly"), r.InFlight.WithLabelValues("mutating")
	return r
}
