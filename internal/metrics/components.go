package metrics

import "github.com/prometheus/client_golang/prometheus"

// Audit are the metrics of the audit sinks. apiserver_audit_level_total and apiserver_audit_event_total are the library's.
type Audit struct {
	// Written is portico_audit_events_written_total by sink: log or webhook.
	Written *prometheus.CounterVec
	// Dropped is portico_audit_events_dropped_total by sink: events that were lost, each counted once.
	Dropped *prometheus.CounterVec
}

// NewAudit registers the metrics of the audit sinks on reg.
func NewAudit(reg prometheus.Registerer) *Audit {
	return &Audit{
		Written: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portico_audit_events_written_total",
			Help: "Audit events that a sink has taken.",
		}, []string{"sink"})),
		Dropped: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portico_audit_events_dropped_total",
			Help: "Audit events that were lost: the sink failed, or its queue was full.",
		}, []string{"sink"})),
	}
}

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

// Discovery are the metrics of the merged discovery documents.
type Discovery struct {
	// Aggregations is aggregator_discovery_aggregation_count_total: how often the merged document was made.
	Aggregations prometheus.Counter
	// BuildSeconds is portico_discovery_build_duration_seconds: how long that took.
	BuildSeconds prometheus.Histogram
	// Rounds is portico_discovery_rounds_total by outcome (ok, failed): asking one backend for all its group-versions.
	Rounds *prometheus.CounterVec
	// Stale is portico_discovery_stale_group_versions: how many are Stale now. Any blocks namespace deletion.
	Stale prometheus.Gauge
	// InitialEvents is portico_discovery_initial_events_resources by verdict (unprobed, honours, refuses, ignores,
	// undetermined): resources of extension servers by how they treat watches that ask for initial events.
	InitialEvents *prometheus.GaugeVec
}

// NewDiscovery registers the metrics of discovery on reg.
func NewDiscovery(reg prometheus.Registerer) *Discovery {
	return &Discovery{
		Aggregations: register(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "aggregator_discovery_aggregation_count_total",
			Help: "Times that the merged discovery document was made.",
		})),
		BuildSeconds: register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "portico_discovery_build_duration_seconds",
			Help:    "Time to make the merged discovery documents.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8),
		})),
		Rounds: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portico_discovery_rounds_total",
			Help: "Rounds of asking one backend for the discovery of its group-versions, by outcome.",
		}, []string{"outcome"})),
		Stale: register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "portico_discovery_stale_group_versions",
			Help: "Group-versions whose resources may have changed since they were last known.",
		})),
		InitialEvents: register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "portico_discovery_initial_events_resources",
			Help: "Resources of extension servers by how these treat watches that ask for initial events: unprobed, honours, refuses, ignores, undetermined. Those that are ignored are answered with 422.",
		}, []string{"verdict"})),
	}
}

// Garbage is the garbage collector. Only the replica that leads has anything to count.
type Garbage struct {
	// SyncErrors is garbagecollector_controller_resources_sync_error_total, as upstream's: a resource could not be listed
	// or watched.
	SyncErrors prometheus.Counter
	// Deleted is portico_garbage_deleted_total: objects deleted because their owners are gone or wait for them.
	Deleted prometheus.Counter
	// Depth is portico_garbage_queue_depth: objects to be processed now.
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

// OpenAPI are the metrics of the OpenAPI documents.
type OpenAPI struct {
	// Rounds is portico_openapi_rounds_total by outcome (ok, failed): asking one backend for its documents.
	Rounds *prometheus.CounterVec
	// Documents is portico_openapi_documents: how many are served now.
	Documents prometheus.Gauge
	// Bytes is portico_openapi_document_bytes: what the documents of backends take in memory, compressed.
	Bytes prometheus.Gauge
	// SwaggerSeconds is portico_openapi_v2_build_seconds: merging the version 2 document when it is requested.
	SwaggerSeconds prometheus.Histogram
	// SwaggerBytes is portico_openapi_v2_bytes: what the merged version 2 document takes in memory, compressed.
	SwaggerBytes prometheus.Gauge
}

// NewOpenAPI registers the metrics of OpenAPI on reg.
func NewOpenAPI(reg prometheus.Registerer) *OpenAPI {
	return &OpenAPI{
		Rounds: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portico_openapi_rounds_total",
			Help: "Rounds of asking one backend for its OpenAPI documents, by outcome.",
		}, []string{"outcome"})),
		Documents: register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "portico_openapi_documents",
			Help: "OpenAPI v3 documents being served.",
		})),
		Bytes: register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "portico_openapi_document_bytes",
			Help: "Memory taken by the compressed OpenAPI documents of backends.",
		})),
		SwaggerSeconds: register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "portico_openapi_v2_build_seconds",
			Help:    "Time to merge the OpenAPI v2 document when it is asked for.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 11),
		})),
		SwaggerBytes: register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "portico_openapi_v2_bytes",
			Help: "Memory taken by the compressed OpenAPI v2 document; 0 while nobody reads it.",
		})),
	}
}

// Overload is the metrics of load shedding.
type Overload struct {
	// Limit, Used and Level are portico_memory_limit_bytes, portico_memory_used_bytes and portico_overload_level.
	Limit, Used, Level prometheus.Gauge
	// Shed is portico_overload_shed_requests_total by reason: memory (503 after authentication), refused (before it), bodies
	// (large bodies are being read already).
	Shed *prometheus.CounterVec
	// Closed is portico_overload_closed_connections_total by reason: idle, largest, handshake.
	Closed *prometheus.CounterVec
}

// NewOverload registers the metrics of shedding on reg.
func NewOverload(reg prometheus.Registerer) *Overload {
	gauge := func(name, help string) prometheus.Gauge {
		return register(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
	}
	return &Overload{
		Limit: gauge("portico_memory_limit_bytes", "Memory that load is shed by. 0: there is no limit."),
		Used:  gauge("portico_memory_used_bytes", "Memory in use for certain, without garbage that is not collected yet."),
		Level: gauge("portico_overload_level", "How short memory is: 0 normal, 1 shedding, 2 critical, 3 exhausted."),
		Shed: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portico_overload_shed_requests_total",
			Help: "Requests that were refused to save memory, by reason: memory, refused (before authentication), bodies.",
		}, []string{"reason"})),
		Closed: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portico_overload_closed_connections_total",
			Help: "Connections that were closed to save memory, by reason: idle, largest, handshake.",
		}, []string{"reason"})),
	}
}
