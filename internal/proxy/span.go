package proxy

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// traceContext writes traceparent and tracestate (W3C). Baggage is not ours to carry: it may hold what a client would
// never send to somebody else's backend, and it has no bound (CVE-2026-41178).
var traceContext propagation.TraceContext

// injectTrace replaces the client's tracing context with the one that the chain decided on, when there is one.
func injectTrace(ctx context.Context, h http.Header) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		delete(h, "Traceparent")
		delete(h, "Tracestate")
		traceContext.Inject(ctx, propagation.HeaderCarrier(h))
	}
}

// beginSpan begins the span of an attempt, and returns the header that continues it at the backend. Requests that are
// not traced cost nothing here.
func (x *exchange) beginSpan(endpoint string, number int, header http.Header) http.Header {
	x.endSpan(0, nil)
	parent := trace.SpanFromContext(x.r.Context())
	if !parent.IsRecording() {
		return nil
	}
	return x.beginRecorded(parent, endpoint, number, header)
}

// beginRecorded is apart from beginSpan because of its large frame, for which the stack of each request would have to
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

// spanContext is the context whose span is the attempt's under way.
func (x *exchange) spanContext() context.Context {
	if x.span == nil {
		return x.r.Context()
	}
	return trace.ContextWithSpan(x.r.Context(), x.span)
}

// endSpan ends the span of the attempt under way, if any.
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
