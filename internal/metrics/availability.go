package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Availability is how this replica sees the backends of APIServices. Names and labels are the incumbent's; the label
// is the name of an existing APIService, and its series go when the object goes. As for Backends, it is kept as it is
// counted, and becomes series when somebody reads it.
type Availability struct {
	unavailable, lost *prometheus.Desc

	mu sync.Mutex // protects of
	of map[string]*availability
}

// availability is what is known of one APIService.
type availability struct {
	seen, unavailable bool
	lost              map[string]int // by reason; nil: never
}

// NewAvailability registers the metrics of availability on reg.
func NewAvailability(reg prometheus.Registerer) *Availability {
	return register(reg, &Availability{
		unavailable: prometheus.NewDesc("aggregator_unavailable_apiservice",
			"1 for each APIService that this replica finds unavailable, 0 for the others.", []string{"name"}, nil),
		lost: prometheus.NewDesc("aggregator_unavailable_apiservice_total",
			"Times that this replica saw an APIService become unavailable, by reason.", []string{"name", "reason"}, nil),
		of: make(map[string]*availability),
	})
}

// Set records whether an APIService is available now.
func (a *Availability) Set(name string, available bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.one(name)
	one.seen, one.unavailable = true, !available
}

// Lost counts an APIService that was available and no longer is.
func (a *Availability) Lost(name, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.one(name)
	if one.lost == nil {
		one.lost = make(map[string]int)
	}
	one.lost[reason]++
}

// one is what is known of an APIService. The caller holds mu.
func (a *Availability) one(name string) *availability {
	if a.of[name] == nil {
		a.of[name] = &availability{}
	}
	return a.of[name]
}

// Forget removes the series of an APIService that is gone.
func (a *Availability) Forget(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, name)
}

// Describe implements prometheus.Collector.
func (a *Availability) Describe(to chan<- *prometheus.Desc) {
	to <- a.unavailable
	to <- a.lost
}

// Collect implements prometheus.Collector.
func (a *Availability) Collect(to chan<- prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, one := range a.of {
		if one.seen {
			value := 0.0
			if one.unavailable {
				value = 1
			}
			to <- prometheus.MustNewConstMetric(a.unavailable, prometheus.GaugeValue, value, name)
		}
		for reason, n := range one.lost {
			to <- prometheus.MustNewConstMetric(a.lost, prometheus.CounterValue, float64(n), name, reason)
		}
	}
}
