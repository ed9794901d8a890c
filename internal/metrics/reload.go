package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Reload holds the metrics of settings that can be reloaded while the front door runs.
type Reload struct{ successful, at prometheus.Gauge }

// NewReload registers the metrics on reg. The start counts as a successful reload.
func NewReload(reg prometheus.Registerer) *Reload {
	r := &Reload{
		successful: newGauge(reg, "portico_config_last_reload_successful",
			"Whether the settings were taken over when they were last read: at the start, or at the last SIGHUP."),
		at: newGauge(reg, "portico_config_last_reload_success_timestamp_seconds", "When the settings were last read and taken over."),
	}
	r.Record(nil)
	return r
}

// Record records the result of a reload.
func (r *Reload) Record(err error) {
	if err != nil {
		r.successful.Set(0)
		return
	}
	r.successful.Set(1)
	r.at.Set(float64(time.Now().UnixMilli()) / 1000)
}
