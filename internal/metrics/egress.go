package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Egress holds the metrics of dials through tunnels. Metrics that exist in kube-apiserver have its names and its
// labels protocol (http_connect or grpc) and transport (tcp or uds). A nil *Egress counts nothing.
type Egress struct {
	// Starts is apiserver_egress_dialer_dial_start_total.
	Starts *prometheus.CounterVec
	// Duration is apiserver_egress_dialer_dial_duration_seconds.
	Duration *prometheus.HistogramVec
	// Failures is apiserver_egress_dialer_dial_failure_count. Label stage: connect or proxy.
	Failures *prometheus.CounterVec
	// Pending is portico_egress_pending_dials, and Open portico_egress_connections. Label: network.
	Pending, Open *prometheus.GaugeVec
}

// NewEgress registers the metrics of tunnels on reg.
func NewEgress(reg prometheus.Registerer) *Egress {
	labels := []string{"protocol", "transport"}
	return &Egress{
		Starts: newCounterVec(reg, "apiserver_egress_dialer_dial_start_total",
			"Dials through tunnels of --egress-selector-config-file, by protocol (http_connect or grpc) and transport (tcp or uds).", labels...),
		Duration: newHistogramVec(reg, "apiserver_egress_dialer_dial_duration_seconds",
			"Duration of successful dials through tunnels.", []float64{0.005, 0.025, 0.1, 0.5, 2.5, 12.5}, labels...),
		Failures: newCounterVec(reg, "apiserver_egress_dialer_dial_failure_count",
			"Dials through tunnels that failed, by the stage that failed: connect (to the tunnel's server) or proxy (from there to the address).", append(labels, "stage")...),
		Pending: newGaugeVec(reg, "portico_egress_pending_dials", "Dials through the tunnel to a network that are under way.", "network"),
		Open:    newGaugeVec(reg, "portico_egress_connections", "Connections through the tunnel to a network that are open.", "network"),
	}
}

// DialStarted counts a dial. The returned function counts its end; failed is the failed stage, or empty on success.
func (m *Egress) DialStarted(network, protocol, transport string) func(failed string) {
	if m == nil {
		return func(string) {}
	}
	m.Starts.WithLabelValues(protocol, transport).Inc()
	m.Pending.WithLabelValues(network).Inc()
	start := time.Now()
	return func(failed string) {
		m.Pending.WithLabelValues(network).Dec()
		if failed != "" {
			m.Failures.WithLabelValues(protocol, transport, failed).Inc()
			return
		}
		m.Duration.WithLabelValues(protocol, transport).Observe(time.Since(start).Seconds())
	}
}

// Connections counts connections: opened for positive n, closed for negative n.
func (m *Egress) Connections(network string, n int) {
	if m != nil {
		m.Open.WithLabelValues(network).Add(float64(n))
	}
}
