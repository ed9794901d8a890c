package metrics

import "github.com/prometheus/client_golang/prometheus"

// Audit holds the metrics of the audit sinks. k8s.io/apiserver counts apiserver_audit_level_total and
// apiserver_audit_event_total.
type Audit struct {
	// Written is portico_audit_events_written_total by sink: log or webhook.
	Written *prometheus.CounterVec
	// Dropped is portico_audit_events_dropped_total by sink: lost events, each counted once.
	Dropped *prometheus.CounterVec
}

// NewAudit registers the metrics of the audit sinks on reg.
func NewAudit(reg prometheus.Registerer) *Audit {
	return &Audit{
		Written: newCounterVec(reg, "portico_audit_events_written_total", "Audit events that a sink has taken.", "sink"),
		Dropped: newCounterVec(reg, "portico_audit_events_dropped_total",
			"Audit events that were lost: the sink failed, or its queue was full.", "sink"),
	}
}

// Backup holds the metrics of scheduled backups. Only the leader makes backups.
type Backup struct {
	// LastSuccess is portico_backup_last_success_timestamp_seconds, 0 before the first backup.
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
		LastSuccess: newGauge(reg, "portico_backup_last_success_timestamp_seconds",
			"When the newest scheduled backup in --backup-dir began, in seconds since 1970. 0: there is none."),
		Failures: newCounter(reg, "portico_backup_failures_total", "Scheduled backups that failed."),
		Size:     newGauge(reg, "portico_backup_size_bytes", "Size of the newest scheduled backup."),
		Duration: newGauge(reg, "portico_backup_duration_seconds", "How long the newest scheduled backup took."),
	}
}

// Discovery holds the metrics of the merged discovery documents.
type Discovery struct {
	// Aggregations is aggregator_discovery_aggregation_count_total: how often the merged document was built.
	Aggregations prometheus.Counter
	// BuildSeconds is portico_discovery_build_duration_seconds: the time to build it.
	BuildSeconds prometheus.Histogram
	// Rounds is portico_discovery_rounds_total by outcome (ok, failed): a round requests all group-versions of one
	// backend.
	Rounds *prometheus.CounterVec
	// Stale is portico_discovery_stale_group_versions: the number of group-versions that are Stale. Each of them
	// blocks namespace deletion.
	Stale prometheus.Gauge
	// InitialEvents is portico_discovery_initial_events_resources by verdict (unprobed, honours, refuses, ignores,
	// undetermined): the number of resources of extension servers by their handling of watches that request initial
	// events.
	InitialEvents *prometheus.GaugeVec
}

// NewDiscovery registers the metrics of discovery on reg.
func NewDiscovery(reg prometheus.Registerer) *Discovery {
	return &Discovery{
		Aggregations: newCounter(reg, "aggregator_discovery_aggregation_count_total", "Times that the merged discovery document was made."),
		BuildSeconds: newHistogram(reg, "portico_discovery_build_duration_seconds",
			"Time to make the merged discovery documents.", prometheus.ExponentialBuckets(0.0005, 4, 8)),
		Rounds: newCounterVec(reg, "portico_discovery_rounds_total",
			"Rounds of asking one backend for the discovery of its group-versions, by outcome.", "outcome"),
		Stale: newGauge(reg, "portico_discovery_stale_group_versions",
			"Group-versions whose resources may have changed since they were last known."),
		InitialEvents: newGaugeVec(reg, "portico_discovery_initial_events_resources",
			"Resources of extension servers by how these treat watches that ask for initial events: unprobed, honours, refuses, ignores, undetermined. Those that are ignored are answered with 422.", "verdict"),
	}
}

// Garbage holds the metrics of the garbage collector. They change only on the leader.
type Garbage struct {
	// SyncErrors is garbagecollector_controller_resources_sync_error_total, as upstream: failures to list or watch a
	// resource.
	SyncErrors prometheus.Counter
	// Deleted is portico_garbage_deleted_total: objects deleted because their owners are gone or wait for the
	// deletion.
	Deleted prometheus.Counter
	// Depth is portico_garbage_queue_depth: objects waiting to be processed.
	Depth prometheus.Gauge
	// Objects is portico_garbage_objects: the number of known objects.
	Objects prometheus.Gauge
	// Monitors is portico_garbage_monitors by state. A monitor is synced after it has received all objects of its
	// resource once, and waiting before.
	Monitors *prometheus.GaugeVec
}

// NewGarbage registers the metrics of the garbage collector on reg.
func NewGarbage(reg prometheus.Registerer) *Garbage {
	return &Garbage{
		SyncErrors: newCounter(reg, "garbagecollector_controller_resources_sync_error_total",
			"Times that the garbage collector could not list or watch a resource."),
		Deleted: newCounter(reg, "portico_garbage_deleted_total", "Objects deleted because their owners are gone, or wait for them to go."),
		Depth:   newGauge(reg, "portico_garbage_queue_depth", "Objects that the garbage collector has to look at now."),
		Objects: newGauge(reg, "portico_garbage_objects", "Objects that the garbage collector knows."),
		Monitors: newGaugeVec(reg, "portico_garbage_monitors",
			"Resources that the garbage collector watches, by whether it has seen all their objects once.", "state"),
	}
}

// OpenAPI holds the metrics of the OpenAPI documents.
type OpenAPI struct {
	// Rounds is portico_openapi_rounds_total by outcome (ok, failed): a round fetches the documents of one backend.
	Rounds *prometheus.CounterVec
	// Documents is portico_openapi_documents: the number of served documents.
	Documents prometheus.Gauge
	// Bytes is portico_openapi_document_bytes: the memory used by the compressed documents of backends.
	Bytes prometheus.Gauge
	// SwaggerSeconds is portico_openapi_v2_build_seconds: the time to merge the version 2 document on request.
	SwaggerSeconds prometheus.Histogram
	// SwaggerBytes is portico_openapi_v2_bytes: the memory used by the compressed merged version 2 document.
	SwaggerBytes prometheus.Gauge
}

// NewOpenAPI registers the metrics of OpenAPI on reg.
func NewOpenAPI(reg prometheus.Registerer) *OpenAPI {
	return &OpenAPI{
		Rounds: newCounterVec(reg, "portico_openapi_rounds_total",
			"Rounds of asking one backend for its OpenAPI documents, by outcome.", "outcome"),
		Documents: newGauge(reg, "portico_openapi_documents", "OpenAPI v3 documents being served."),
		Bytes:     newGauge(reg, "portico_openapi_document_bytes", "Memory taken by the compressed OpenAPI documents of backends."),
		SwaggerSeconds: newHistogram(reg, "portico_openapi_v2_build_seconds",
			"Time to merge the OpenAPI v2 document when it is asked for.", prometheus.ExponentialBuckets(0.005, 2, 11)),
		SwaggerBytes: newGauge(reg, "portico_openapi_v2_bytes",
			"Memory taken by the compressed OpenAPI v2 document; 0 while nobody reads it."),
	}
}

// Overload holds the metrics of load shedding.
type Overload struct {
	// Limit, Used and Level are portico_memory_limit_bytes, portico_memory_used_bytes and portico_overload_level.
	Limit, Used, Level prometheus.Gauge
	// Shed is portico_overload_shed_requests_total by reason: memory (503 after authentication), refused (before
	// authentication), bodies (too many large bodies are being read).
	Shed *prometheus.CounterVec
	// Closed is portico_overload_closed_connections_total by reason: idle, largest, handshake.
	Closed *prometheus.CounterVec
}

// NewOverload registers the metrics of load shedding on reg.
func NewOverload(reg prometheus.Registerer) *Overload {
	return &Overload{
		Limit: newGauge(reg, "portico_memory_limit_bytes", "Memory that load is shed by. 0: there is no limit."),
		Used:  newGauge(reg, "portico_memory_used_bytes", "Memory in use for certain, without garbage that is not collected yet."),
		Level: newGauge(reg, "portico_overload_level", "How short memory is: 0 normal, 1 shedding, 2 critical, 3 exhausted."),
		Shed: newCounterVec(reg, "portico_overload_shed_requests_total",
			"Requests that were refused to save memory, by reason: memory, refused (before authentication), bodies.", "reason"),
		Closed: newCounterVec(reg, "portico_overload_closed_connections_total",
			"Connections that were closed to save memory, by reason: idle, largest, handshake.", "reason"),
	}
}
