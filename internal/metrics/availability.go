package metrics

import "github.com/prometheus/client_golang/prometheus"

// Availability is how this replica sees the backends of APIServices. Names and labels are the incumbent's; the label
// is the name of an existing APIService, and its series go when the object goes.
type Availability struct {
	unavailable *prometheus.GaugeVec
	lost        *prometheus.CounterVec
}

// NewAvailability registers the metrics of availability on reg.
func NewAvailability(reg prometheus.Registerer) *Availability {
	return &Availability{
		unavailable: register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "aggregator_unavailable_apiservice",
			Help: "1 for each APIService that this replica finds unavailable, 0 for the others.",
		}, []string{"name"})),
		lost: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aggregator_unavailable_apiservice_total",
			Help: "Times that this replica saw an APIService become unavailable, by reason.",
		}, []string{"name", "reason"})),
	}
}

// Set records whether an APIService is available now.
func (a *Availability) Set(name string, available bool) {
	value := 1.0
	if available {
		value = 0
	}
	a.unavailable.WithLabelValues(name).Set(value)
}

// Lost counts an APIService that was available and no longer is.
func (a *Availability) Lost(name, reason string) {
	a.lost.WithLabelValues(name, reason).Inc()
}

// Forget removes the series of an APIService that is gone.
func (a *Availability) Forget(name string) {
	a.unavailable.DeleteLabelValues(name)
	a.lost.DeletePartialMatch(prometheus.Labels{"name": name})
}
