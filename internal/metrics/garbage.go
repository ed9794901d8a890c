package metrics

import "github.com/prometheus/client_golang/prometheus"

// Garbage is the garbage collector. Only the replica that leads has anything to count.
type Garbage struct {
	// SyncErrors is garbagecollector_controller_resources_sync_error_total, as upstream's: a resource could not be listed
	// or watched.
	SyncErrors prometheus.Counter
	// Deleted is portico_garbage_deleted_total: objects deleted because their owners are gone or wait for them.
	Deleted prometheus.Counter
	// Depth is portico_garbage_queue_depth: objects to be looked at now.
	Depth prometheus.Gauge
	// Objects is portico_garbage_objects: how many are known.
	Objects prometheus.Gauge
	// Monitors is portico_garbage_monitors by state: synced has seen all objects of its resource once, waiting has not.
	Monitors *prometheus.GaugeVec
}

// NewGarbage registers the metrics of the garbage collector on reg.
func NewGarbage(reg prometheus.Registerer) *Garbage {
	return &Garbage{
		SyncErrors: register(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "garbagecollector_controller_resources_sync_error_total",
			Help: "Times that the garbage collector could not list or watch a resource.",
		})),
		Deleted: register(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portico_garbage_deleted_total",
			Help: "Objects deleted because their owners are gone, or wait for them to go.",
		})),
		Depth: register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "portico_garbage_queue_depth",
			Help: "Objects that the garbage collector has to look at now.",
		})),
		Objects: register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "portico_garbage_objects",
			Help: "Objects that the garbage collector knows.",
		})),
		Monitors: register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "portico_garbage_monitors",
			Help: "Resources that the garbage collector watches, by whether it has seen all their objects once.",
		}, []string{"state"})),
	}
}
