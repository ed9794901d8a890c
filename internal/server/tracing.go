package server

import (
	"context"
	"net/http"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
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
			defer func() { endSpan(span, r, info, rec, responseOf(w)) }()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

// beginSpan continues the caller's trace when the caller is privileged. Another client could have every request sampled,
// here and at the backend, or write into a trace that is not theirs; their trace is only linked to.
func beginSpan(r *http.Request, tracer trace.Tracer, rec *record) (context.Context, trace.Span) {
	ctx := r.Context()
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(rec.started)}
	remote := trace.SpanContextFromContext(remoteContext(r.Header))
	switch {
	case !remote.IsValid():
	case mayContinueTraces(rec.user):
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
func endSpan(span trace.Span, r *http.Request, info *apirequest.RequestInfo, rec *record, res *response) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	name := verbLabel(info)
	if info.IsResourceRequest && rec.servedBy != "" && res.Code != http.StatusNotFound {
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
		attribute.String("portico.served-by", rec.servedBy),
	)
	if res.Code >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, filters.Bounded(rec.failure))
	}
}
