package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Results of reads that may share responses.
const (
	// SharedSent means that the read was sent to the extension server and its response shared with the waiting reads.
	SharedSent = "sent"
	// SharedWaited means that the read waited for the response to another read.
	SharedWaited = "waited"
	// SharedKept means that an earlier response was recent enough.
	SharedKept = "kept"
	// SharedStale means that the extension server failed and an earlier response was served.
	SharedStale = "stale"
	// SharedNot means that the response cannot be shared, because it was too large or its code was not 200.
	SharedNot = "not_shared"
)

// SharedReads holds the metrics of reads that share responses. A nil *SharedReads counts nothing.
type SharedReads struct {
	served *prometheus.CounterVec
	bytes  prometheus.Gauge

	series seriesCache[sharedSeries, prometheus.Counter]
}

// sharedSeries are the label values of a cached series of served.
type sharedSeries struct{ apiRoute, result string }

// NewSharedReads registers the metrics of shared reads on reg.
func NewSharedReads(reg prometheus.Registerer) *SharedReads {
	return &SharedReads{
		served: newCounterVec(reg, "portico_shared_reads_total",
			"Reads that an APIRoute or a Cluster allows to share responses, by the APIRoute (cluster/NAME for a Cluster) and how they were answered: sent to the extension server, waited for the response to an equal one, kept (from before), stale (from before, because the extension server failed) or not_shared.", "apiroute", "result"),
		bytes: newGauge(reg, "portico_shared_reads_bytes", "Bytes of the responses that are kept to be shared."),
	}
}

// Served counts a read.
func (s *SharedReads) Served(apiRoute, result string) {
	if s == nil {
		return
	}
	key := sharedSeries{apiRoute, result}
	counter, ok := s.series.find(key)
	if !ok {
		counter = s.served.WithLabelValues(apiRoute, result)
		s.series.set(key, counter)
	}
	counter.Inc()
}

// Keeps sets the number of bytes kept.
func (s *SharedReads) Keeps(bytes int64) {
	if s != nil {
		s.bytes.Set(float64(bytes))
	}
}
