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

// tracingFilter gives each request a span. It comes after authentication because the client decides whose trace it
// continues; the span starts when the request did. Requests without a valid credential have none.
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

// beginSpan continues the caller's trace when the caller is privileged. Another client could have every request sampled,
// here and at the backend, or write into a trace that is not theirs; their trace is only linked to.
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

// maxTraceHeader bounds what is read of a client's tracing context (attack row D12).
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

// endSpan records the outcome of the request. A resource becomes part of the name only when it is served, since
// collectors group by name and a scanner may ask for anything.
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

// TracingConfig is where spans go and how many there are.
type TracingConfig struct {
	// Endpoint is host:port of a collector that takes OTLP over gRPC without TLS, as kube-apiserver's: one on this
	// machine. Empty: spans are not sent.
	Endpoint string
	// SamplingRatePerMillion is how many of a million requests begin a trace of their own. Default 0: only requests
	// whose privileged caller traces them already.
	SamplingRatePerMillion int
	// Service and Version say who we are.
	Service, Version string
	// Dial makes the connections to the collector. Nil: they are direct.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Interval is how long spans are gathered before they are sent. Default 5 s.
	Interval time.Duration
	// Logger gets errors about spans that could not be sent. May be nil.
	Logger *zap.Logger
}

const (
	// maxQueuedSpans bounds the spans that wait for the collector.
	maxQueuedSpans = 2048
	// maxSpanAttribute bounds each value that a client may have chosen.
	maxSpanAttribute  = 512
	spanExportTimeout = 5 * time.Second
	// lastSpanFlush is how long the spans that are left may take at the end.
	lastSpanFlush = 2 * time.Second
)

// TracerProvider makes spans and sends them to an OTLP collector. tracingFilter decides which requests begin one, and the proxy
// which attempts at a backend do. No request waits for the collector: spans are queued up to a bound, and dropped beyond it.
type TracerProvider struct {
	config   TracingConfig
	exporter *otlptrace.Exporter
	spans    *sdktrace.TracerProvider
}

// NewTracerProvider allocates a provider. It does not connect until Run.
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

// Tracer begins the spans of requests.
func (p *TracerProvider) Tracer() trace.Tracer { return p.spans.Tracer("portico.dev") }

// Run sends spans until ctx ends, and then those that are left, for a while.
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

// loggingExporter logs what could not be sent. The library would write it to standard error, in its own words.
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
		o.log.Warn("spans were lost", zap.Int("spans", len(spans)), zap.Error(err))
	}
	return nil
}

// stop sends what is left. A collector that is away must not delay the stop: the exporter goes first, and ends its
// attempts when the time is up, so that the queue empties into nothing. No error here is of use.
func (p *TracerProvider) stop() {
	last, cancel := context.WithTimeout(context.Background(), lastSpanFlush)
	defer cancel()
	_ = p.spans.ForceFlush(last)
	_ = p.exporter.Shutdown(last)
	_ = p.spans.Shutdown(context.Background())
}

// utf8Span is a span whose texts can be encoded. The library that serves the local groups puts the client's User-Agent
// into spans as it came, and one byte in it that is no UTF-8 would cost every span of the same batch.
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
