package metrics

import "github.com/prometheus/client_golang/prometheus"

// Reasons for the end of a client's watch.
const (
	WatchClientLeft = "client_left"
	WatchTimeout    = "timeout"
	WatchSlow       = "slow"
	WatchExpired    = "expired"
	WatchUpstream   = "upstream"
)

// SharedWatches holds the metrics of client watches that share a watch of an extension server. A nil *SharedWatches
// counts nothing.
type SharedWatches struct {
	streams, clients prometheus.Gauge
	events, ended    *prometheus.CounterVec
}

// NewSharedWatches registers the metrics of shared watches on reg.
func NewSharedWatches(reg prometheus.Registerer) *SharedWatches {
	return &SharedWatches{
		streams: newGauge(reg, "portico_shared_watches", "Watches of extension servers that feed several clients."),
		clients: newGauge(reg, "portico_shared_watch_clients", "Clients that are fed by shared watches, or wait for one."),
		events: newCounterVec(reg, "portico_shared_watch_events_total",
			"Events that shared watches received, by APIRoute (cluster/NAME for a Cluster). Each goes to any number of clients.", "apiroute"),
		ended: newCounterVec(reg, "portico_shared_watch_ended_total",
			"Watches of clients that were fed by a shared watch, by APIRoute (cluster/NAME for a Cluster) and why they ended: client_left, timeout, slow (it read too slowly, and got 410), expired (the extension server said 410) or upstream (the extension server ended the watch, or could not be reached).", "apiroute", "reason"),
	}
}

// Streams sets the number of shared watches.
func (s *SharedWatches) Streams(n int) {
	if s != nil {
		s.streams.Set(float64(n))
	}
}

// Clients sets the number of clients of shared watches.
func (s *SharedWatches) Clients(n int) {
	if s != nil {
		s.clients.Set(float64(n))
	}
}

// Event counts an event from an extension server.
func (s *SharedWatches) Event(apiRoute string) {
	if s != nil {
		s.events.WithLabelValues(apiRoute).Inc()
	}
}

// Ended counts the end of a client's watch.
func (s *SharedWatches) Ended(apiRoute, reason string) {
	if s != nil {
		s.ended.WithLabelValues(apiRoute, reason).Inc()
	}
}
