package metrics

import "github.com/prometheus/client_golang/prometheus"

// Backup is scheduled backups. Only the replica that leads makes them.
type Backup struct {
	// LastSuccess is portico_backup_last_success_timestamp_seconds; 0: there was none yet.
	LastSuccess prometheus.Gauge
	// Failures is portico_backup_failures_total.
	Failures prometheus.Counter
	// Size is portico_backup_size_bytes.
	Size prometheus.Gauge
	// Duration is portico_backup_duration_seconds.
	Duration prometheus.Gauge
}

// NewBackup registers the metrics of scheduled backups on reg.
func NewBackup(reg prometheus.Registerer) *Backup {
	return &Backup{
		LastSuccess: register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "portico_backup_last_success_timestamp_seconds",
			Help: "When the newest scheduled backup in --backup-dir began, in seconds since 1970. 0: there is none.",
		})),
		Failures: register(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portico_backup_failures_total",
			Help: "Scheduled backups that failed.",
		})),
		Size: register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "portico_backup_size_bytes",
			Help: "Size of the newest scheduled backup.",
		})),
		Duration: register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "portico_backup_duration_seconds",
			Help: "How long the newest scheduled backup took.",
		})),
	}
}
