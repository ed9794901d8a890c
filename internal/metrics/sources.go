package metrics

import "github.com/prometheus/client_golang/prometheus"

// sources tells how the sources of an extension server are doing, at the time of the scrape.
type sources struct {
	up   func() map[string]bool
	desc *prometheus.Desc
}

// NewSources registers extserver_source_up on reg: by source, 1 when it is well and 0 when it is in trouble. up is asked
// at every scrape.
func NewSources(reg prometheus.Registerer, up func() map[string]bool) {
	reg.MustRegister(sources{up: up, desc: prometheus.NewDesc("extserver_source_up",
		"Whether what resources read from is well (1) or in trouble (0).", []string{"source"}, nil)})
}

// Describe names the metric.
func (s sources) Describe(to chan<- *prometheus.Desc) { to <- s.desc }

// Collect asks how the sources are doing.
func (s sources) Collect(to chan<- prometheus.Metric) {
	for name, well := range s.up() {
		value := 0.0
		if well {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, value, name)
	}
}
