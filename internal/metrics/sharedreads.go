package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// How a read that may be shared was answered.
const (
	// SharedSent is one that was sent to the extension server, and whose response was for all who waited.
	SharedSent = "sent"
	// SharedWaited is one that waited for the response to another one.
	SharedWaited = "waited"
	// SharedKept is one that a response from before was young enough for.
	SharedKept = "kept"
	// SharedStale is one that the extension server failed to answer, and that got a response from before.
	SharedStale = "stale"
	// SharedNot is one whose response cannot be shared: it was too large, or its code was not 200.
	SharedNot = "not_shared"
)

// SharedReads are the metrics of reads that share responses. A nil *SharedReads counts nothing.
type SharedReads struct {
	served *prometheus.CounterVec
	bytes  prometheus.Gauge

	mu     sync.RWMutex // guards what follows
	series map[sharedSeries]prometheus.Counter
}

// sharedSeries are the label values of a series of served, which is looked up once.
type sharedSeries struct{ apiRoute, result string }

// NewSharedReads registers the metrics of shared reads on reg.
func NewSharedReads(reg prometheus.Registerer) *SharedReads {
	return &SharedReads{
		served: newCounterVec(reg, "portico_shared_reads_total",
			"Reads that an APIRoute allows to share responses, by the APIRoute and how they were answered: sent to the extension server, waited for the response to an equal one, kept (from before), stale (from before, because the extension server failed) or not_shared.", "apiroute", "result"),
		bytes: newGauge(reg, "portico_shared_reads_bytes", "Bytes of the responses that are kept to be shared."),
	}
}

// Served counts a read.
func (s *SharedReads) Served(apiRoute, result string) {
	if s == nil {
		return
	}
	key := sharedSeries{apiRoute, result}
	s.mu.RLock()
	counter, ok := s.series[key]
	s.mu.RUnlock()
	if !ok {
		counter = s.served.WithLabelValues(apiRoute, result)
		s.mu.Lock()
		if s.series == nil {
			s.series = map[sharedSeries]prometheus.Counter{}
		}
		s.series[key] = counter
		s.mu.Unlock()
	}
	counter.Inc()
}

// Keeps is how many bytes are kept.
func (s *SharedReads) Keeps(bytes int64) {
	if s != nil {
		s.bytes.Set(float64(bytes))
	}
}
