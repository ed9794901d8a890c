package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Peers holds the metrics of requests forwarded between replicas, and of the differences between their clocks. A nil
// *Peers counts nothing.
type Peers struct {
	sent, received *prometheus.CounterVec
	serving        prometheus.Gauge
	clockSkew      *prometheus.GaugeVec
}

// NewPeers registers the metrics of requests between replicas on reg.
func NewPeers(reg prometheus.Registerer) *Peers {
	return &Peers{
		sent: newCounterVec(reg, "portico_peer_requests_sent_total",
			"Requests handed to other replicas, by what they are for: the name of an APIService, or of a group-version as one has.", "apiservice"),
		received: newCounterVec(reg, "portico_peer_requests_received_total",
			"Requests that came from other replicas, by result: served, refused (it was not proven that a replica sent them) or limited.", "result"),
		serving: newGauge(reg, "portico_peer_requests_serving",
			"Requests of other replicas that are being served, with watches and other long-running ones."),
		clockSkew: newGaugeVec(reg, "portico_replica_clock_skew_seconds",
			"How far the clock of another replica is ahead of that of this one, at the least, to the second. The oldest replica compares itself with each other one, and the second oldest with the oldest.", "replica"),
	}
}

// Sent counts a request that was forwarded to another replica.
func (p *Peers) Sent(apiService string) {
	if p != nil {
		p.sent.WithLabelValues(apiService).Inc()
	}
}

// Received counts a request from another replica.
func (p *Peers) Received(result string) {
	if p != nil {
		p.received.WithLabelValues(result).Inc()
	}
}

// Serving adds n to the number of requests of other replicas that are being served.
func (p *Peers) Serving(n int) {
	if p != nil {
		p.serving.Add(float64(n))
	}
}

// ClockSkew records how far the clock of another replica is ahead.
func (p *Peers) ClockSkew(replica string, skew time.Duration) {
	if p != nil {
		p.clockSkew.WithLabelValues(replica).Set(skew.Seconds())
	}
}

// Remove removes the series of a replica that no longer exists.
func (p *Peers) Remove(replica string) {
	if p != nil {
		p.clockSkew.DeleteLabelValues(replica)
	}
}
