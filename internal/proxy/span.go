package proxy

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// traceContext writes traceparent and tracestate (W3C). The proxy does not forward baggage: it may contain data that the
// client does not intend for a third-party backend, and its size is unlimited (CVE-2026-41178).
var traceContext propagation.TraceContext

// injectTrace replaces the client's tracing context with the one that the chain chose, if there is one.
func injectTrace(ctx context.Context, h http.Header) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		delete(h, "Traceparent")
		delete(h, "Tracestate")
		traceContext.Inject(ctx, propagation.HeaderCarrier(h))
	}
}

// beginSpan starts the span of an attempt, and returns the header that continues it at the backend. It costs nothing for
// requests that are not traced.
func (x *exchange) beginSpan(endpoint string, number int, header http.Header) http.Header {
	x.endSpan(0, nil)
	parent := trace.SpanFromContext(x.r.Context())
	if !parent.IsRecording() {
		return nil
	}
	return x.beginRecorded(parent, endpoint, number, header)
}

// beginRecorded is separate from beginSpan because of its large frame, for which the stack of every request would have to
// grow.
func (x *exchange) beginRecorded(parent trace.Span, endpoint string, number int, header http.Header) http.Header {
	ctx := x.r.Context()
	ctx, x.span = parent.TracerProvider().Tracer("portico.dev/internal/proxy").Start(ctx, "attempt",
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(
			attribute.String("portico.apiservice", x.dest.APIService),
			attribute.String("server.address", x.host()),
			attribute.String("network.peer.address", endpoint),
			attribute.Int("http.request.resend_count", number-1),
		))
	if header == nil {
		header = http.Header{}
	}
	header = header.Clone()
	injectTrace(ctx, header)
	return header
}

// spanContext returns a context with the span of the current attempt.
func (x *exchange) spanContext() context.Context {
	if x.span == nil {
		return x.r.Context()
	}
	return trace.ContextWithSpan(x.r.Context(), x.span)
}

// endSpan ends the span of the current attempt, if there is one.
func (x *exchange) endSpan(code int, err error) {
	if x.span == nil {
		return
	}
	if code != 0 {
		x.span.SetAttributes(attribute.Int("http.response.status_code", code))
	}
	if err != nil {
		x.span.SetStatus(codes.Error, err.Error())
	}
	x.span.End()
	x.span = nil
}
