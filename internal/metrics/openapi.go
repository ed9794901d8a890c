package metrics

import "github.com/prometheus/client_golang/prometheus"

// OpenAPI are the metrics of the OpenAPI documents.
type OpenAPI struct {
	// Rounds is portico_openapi_rounds_total by outcome (ok, failed): asking one backend for its documents.
	Rounds *prometheus.CounterVec
	// Documents is portico_openapi_documents: how many are served now.
	Documents prometheus.Gauge
	// Bytes is portico_openapi_document_bytes: what the documents of backends take in memory, compressed.
	Bytes prometheus.Gauge
	// SwaggerSeconds is portico_openapi_v2_build_seconds: merging the version 2 document when somebody asks for it.
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
