package metrics

import "github.com/prometheus/client_golang/prometheus"

// What became of the copy of a read.
const (
	// MirrorSame is one that both backends answered the same.
	MirrorSame = "same"
	// MirrorStatus is one that they answered with different codes.
	MirrorStatus = "status"
	// MirrorBody is one that they answered with the same code and different bodies.
	MirrorBody = "body"
	// MirrorFailed is one that the other backend did not answer, or not completely.
	MirrorFailed = "failed"
	// MirrorDropped is one that was not sent or not compared: there was no room, or a body was too large.
	MirrorDropped = "dropped"
)

// Mirror are the metrics of mirrored reads. A nil *Mirror counts nothing.
type Mirror struct {
	// Reads is portico_mirrored_reads_total.
	Reads *prometheus.CounterVec
}

// NewMirror registers the metrics of mirrored reads on reg.
func NewMirror(reg prometheus.Registerer) *Mirror {
	return &Mirror{Reads: newCounterVec(reg, "portico_mirrored_reads_total",
		"Copies of reads for a second backend of an APIRoute, by the APIRoute, that backend and what it answered: same, another status, another body, failed (no complete response), or dropped (not sent or not compared, because there was no room or a body was too large).", "apiroute", "backend", "result")}
}

// Read counts a copy.
func (m *Mirror) Read(apiRoute, backend, result string) {
	if m != nil {
		m.Reads.WithLabelValues(apiRoute, backend, result).Inc()
	}
}
