package metrics

import "github.com/prometheus/client_golang/prometheus"

// Peers are the metrics of requests that replicas hand to each other. A nil *Peers counts nothing.
type Peers struct {
	sent, received *prometheus.CounterVec
}

// NewPeers registers the metrics of requests between replicas on reg.
func NewPeers(reg prometheus.Registerer) *Peers {
	return &Peers{
		sent: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portico_peer_requests_sent_total",
			Help: "Requests handed to other replicas, by what they are for: the name of an APIService, or of a group-version as one has.",
		}, []string{"apiservice"})),
		received: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portico_peer_requests_received_total",
			Help: "Requests that came from other replicas, by result: served, refused (it was not proven that a replica sent them) or limited.",
		}, []string{"result"})),
	}
}

// Sent counts a request that was handed to another replica.
func (p *Peers) Sent(apiService string) {
	if p != nil {
		p.sent.WithLabelValues(apiService).Inc()
	}
}

// Received counts a request of another replica.
func (p *Peers) Received(result string) {
	if p != nil {
		p.received.WithLabelValues(result).Inc()
	}
}
