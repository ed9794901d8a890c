package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
	"portico.dev/internal/request"
)

// tracingFilter creates a span for each request. It follows authentication, because the client's identity decides
// whether its trace is continued; the span begins when the request began. Requests without a valid credential have no
// span.
func tracingFilter(tracer trace.Tracer) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if tracer == nil {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec := recordFrom(r.Context())
			info, _ := requestInfo(r.Context())
			ctx, span := beginSpan(r, tracer, rec)
			filters.AtEnd(ctx, filters.StepFunc(func(any) { endSpan(span, r, info, rec, responseOf(w)) }))
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

// beginSpan continues the caller's trace if the caller is privileged. Any other client could have every request
// sampled, here and at the backend, or write into a foreign trace, so the span only links to its trace.
func beginSpan(r *http.Request, tracer trace.Tracer, rec *filters.Record) (context.Context, trace.Span) {
	ctx := r.Context()
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(rec.Started)}
	remote := trace.SpanContextFromContext(remoteContext(r.Header))
	switch {
	case !remote.IsValid():
	case mayContinueTraces(rec.User):
		ctx = trace.ContextWithRemoteSpanContext(ctx, remote)
	default:
		options = append(options, trace.WithLinks(trace.Link{SpanContext: remote.WithTraceState(trace.TraceState{})}))
	}
	return tracer.Start(ctx, "request", options...)
}

// maxTraceHeader limits the tracing headers that are read from a client (attack row D12).
const maxTraceHeader = 512

func remoteContext(h http.Header) context.Context {
	ctx := context.Background()
	parent, state := h["Traceparent"], h["Tracestate"]
	if len(parent) != 1 || len(parent[0]) > maxTraceHeader {
		return ctx
	}
	carrier := propagation.MapCarrier{"traceparent": parent[0]}
	if len(state) == 1 && len(state[0]) <= maxTraceHeader {
		carrier["tracestate"] = state[0]
	}
	return propagation.TraceContext{}.Extract(ctx, carrier)
}

func mayContinueTraces(u user.Info) bool {
	return u != nil && (slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) || slices.Contains(u.GetGroups(), user.MonitoringGroup))
}

// endSpan records the outcome of the request. A resource becomes part of the span's name only if it is served:
// collectors group by name, and a scanner may request any name.
func endSpan(span trace.Span, r *http.Request, info *apirequest.RequestInfo, rec *filters.Record, res *response) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	name := verbLabel(info)
	if info.IsResourceRequest && rec.ServedBy != "" && res.Code != http.StatusNotFound {
		name += " " + info.Resource
		if info.Subresource != "" {
			name += "/" + info.Subresource
		}
		span.SetAttributes(attribute.String("k8s.api.group", info.APIGroup), attribute.String("k8s.api.version", info.APIVersion))
	}
	span.SetName(name)
	span.SetAttributes(
		attribute.String("http.request.method", r.Method),
		attribute.String("url.path", filters.Bounded(r.URL.Path)),
		attribute.Int("http.response.status_code", res.Code),
		attribute.String("portico.audit-id", request.AuditID(r.Context())),
		attribute.String("portico.served-by", rec.ServedBy),
	)
	if res.Code >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, filters.Bounded(rec.Failure))
	}
}

// TracingConfig configures the export and the sampling of spans.
type TracingConfig struct {
	// Endpoint is host:port of a collector of OTLP over gRPC without TLS, as in kube-apiserver: a collector on this
	// machine. If empty, spans are not sent.
	Endpoint string
	// SamplingRatePerMillion is how many of a million requests begin a new trace. Default 0: only requests that a
	// privileged caller already traces.
	SamplingRatePerMillion int
	// Service and Version identify this server in spans.
	Service, Version string
	// Dial connects to the collector. If nil, connections are direct.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Interval is how long spans are collected before they are sent. Default 5 s.
	Interval time.Duration
	// Logger receives errors about spans that could not be sent. May be nil.
	Logger *zap.Logger
}

const (
	// maxQueuedSpans limits the spans that wait for the collector.
	maxQueuedSpans = 2048
	// maxSpanAttribute limits each value that a client may have chosen.
	maxSpanAttribute  = 512
	spanExportTimeout = 5 * time.Second
	// lastSpanFlush limits the time of the last export at shutdown.
	lastSpanFlush = 2 * time.Second
)

// TracerProvider creates spans and sends them to an OTLP collector. tracingFilter decides which requests have a span,
// and the proxy which attempts at a backend have one. Requests do not wait for the collector: spans are queued up to
// a limit, and dropped beyond it.
type TracerProvider struct {
	config   TracingConfig
	exporter *otlptrace.Exporter
	spans    *sdktrace.TracerProvider
}

// NewTracerProvider returns a provider. It does not connect until Run.
func NewTracerProvider(c TracingConfig) *TracerProvider {
	if c.Interval <= 0 {
		c.Interval = 5 * time.Second
	}
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit, limits.AttributeCountLimit = maxSpanAttribute, 32
	ratio := float64(c.SamplingRatePerMillion) / 1_000_000
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	options := []otlptracegrpc.Option{
		otlptracegrpc.WithEndpoint(c.Endpoint), otlptracegrpc.WithInsecure(), otlptracegrpc.WithTimeout(spanExportTimeout),
	}
	if c.Dial != nil {
		options = append(options, otlptracegrpc.WithDialOption(grpc.WithContextDialer(c.Dial)))
	}
	return &TracerProvider{
		config:   c,
		exporter: otlptrace.NewUnstarted(otlptracegrpc.NewClient(options...)),
		spans: sdktrace.NewTracerProvider(
			sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio))),
			sdktrace.WithRawSpanLimits(limits),
			sdktrace.WithResource(resource.NewSchemaless(
				attribute.String("service.name", c.Service), attribute.String("service.version", c.Version),
			)),
		),
	}
}

// Tracer returns the tracer for requests.
func (p *TracerProvider) Tracer() trace.Tracer { return p.spans.Tracer("portico.dev") }

// Run sends spans until ctx is done, and then the remaining ones for at most lastSpanFlush.
func (p *TracerProvider) Run(ctx context.Context) error {
	if err := p.exporter.Start(ctx); err != nil {
		return fmt.Errorf("exporter of spans to %s: %w", p.config.Endpoint, err)
	}
	p.spans.RegisterSpanProcessor(sdktrace.NewBatchSpanProcessor(loggingExporter{p.exporter, p.config.Logger},
		sdktrace.WithMaxQueueSize(maxQueuedSpans), sdktrace.WithBatchTimeout(p.config.Interval), sdktrace.WithExportTimeout(spanExportTimeout),
	))
	<-ctx.Done()
	p.stop()
	return nil
}

// loggingExporter logs failed exports. The OpenTelemetry SDK would write them to standard error.
type loggingExporter struct {
	*otlptrace.Exporter
	log *zap.Logger
}

// ExportSpans implements sdktrace.SpanExporter.
func (o loggingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	valid := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, s := range spans {
		valid[i] = utf8Span{s}
	}
	if err := o.Exporter.ExportSpans(ctx, valid); err != nil {
		o.log.Warn("failed to export spans", zap.Int("spans", len(spans)), zap.Error(err))
	}
	return nil
}

// stop sends the remaining spans. An unreachable collector must not delay the stop: the exporter shuts down first and
// ends its attempts after lastSpanFlush, so that the rest of the queue is discarded. The errors are of no use here.
func (p *TracerProvider) stop() {
	last, cancel := context.WithTimeout(context.Background(), lastSpanFlush)
	defer cancel()
	_ = p.spans.ForceFlush(last)
	_ = p.exporter.Shutdown(last)
	_ = p.spans.Shutdown(context.Background())
}

// utf8Span is a span with text that can be encoded. k8s.io/apiserver copies the client's User-Agent into spans
// unchanged, and a single byte that is not UTF-8 would lose every span of the same batch.
type utf8Span struct{ sdktrace.ReadOnlySpan }

// Attributes implements sdktrace.ReadOnlySpan.
func (s utf8Span) Attributes() []attribute.KeyValue {
	return validUTF8(s.ReadOnlySpan.Attributes())
}

// Events implements sdktrace.ReadOnlySpan.
func (s utf8Span) Events() []sdktrace.Event {
	events := append([]sdktrace.Event(nil), s.ReadOnlySpan.Events()...)
	for i := range events {
		events[i].Attributes = validUTF8(events[i].Attributes)
	}
	return events
}

// Status implements sdktrace.ReadOnlySpan.
func (s utf8Span) Status() sdktrace.Status {
	status := s.ReadOnlySpan.Status()
	status.Description = strings.ToValidUTF8(status.Description, "\uFFFD")
	return status
}

func validUTF8(attributes []attribute.KeyValue) []attribute.KeyValue {
	all := append([]attribute.KeyValue(nil), attributes...)
	for i, a := range all {
		if text := a.Value.AsString(); a.Value.Type() == attribute.STRING && !utf8.ValidString(text) {
			all[i].Value = attribute.StringValue(strings.ToValidUTF8(text, "\uFFFD"))
		}
	}
	return all
}
