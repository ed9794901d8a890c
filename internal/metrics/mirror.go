package metrics

import "github.com/prometheus/client_golang/prometheus"

// Results of mirroring a read.
const (
	// MirrorSame means that both backends responded identically.
	MirrorSame = "same"
	// MirrorStatus means that the status codes differed.
	MirrorStatus = "status"
	// MirrorBody means that the status codes were equal and the bodies differed.
	MirrorBody = "body"
	// MirrorFailed means that the second backend did not respond, or not completely.
	MirrorFailed = "failed"
	// MirrorDropped means that the copy was not sent or not compared, because of limits or a large body.
	MirrorDropped = "dropped"
)

// Mirror holds the metrics of mirrored reads. A nil *Mirror counts nothing.
type Mirror struct {
	// Reads is portico_mirrored_reads_total.
	Reads *prometheus.CounterVec
}

// NewMirror registers the metrics of mirrored reads on reg.
func NewMirror(reg prometheus.Registerer) *Mirror {
	return &Mirror{Reads: newCounterVec(reg, "portico_mirrored_reads_total",
		"Copies of reads for a second backend of an APIRoute, by the APIRoute, that backend and what it answered: same, another status, another body, failed (no complete response), or dropped (not sent or not compared, because there was no room or a body was too large).", "apiroute", "backend", "result")}
}

// Read counts a mirrored read.
func (m *Mirror) Read(apiRoute, backend, result string) {
	if m != nil {
		m.Reads.WithLabelValues(apiRoute, backend, result).Inc()
	}
}
