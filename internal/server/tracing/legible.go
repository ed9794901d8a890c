package tracing

import (
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// legibleSpan is a span whose texts can be encoded. The library that serves the local groups puts the client's User-Agent
// into spans as it came, and one byte in it that is no UTF-8 would cost every span of the same batch.
type legibleSpan struct{ sdktrace.ReadOnlySpan }

// Attributes implements sdktrace.ReadOnlySpan.
func (s legibleSpan) Attributes() []attribute.KeyValue {
	return legible(s.ReadOnlySpan.Attributes())
}

// Events implements sdktrace.ReadOnlySpan.
func (s legibleSpan) Events() []sdktrace.Event {
	events := append([]sdktrace.Event(nil), s.ReadOnlySpan.Events()...)
	for i := range events {
		events[i].Attributes = legible(events[i].Attributes)
	}
	return events
}

// Status implements sdktrace.ReadOnlySpan.
func (s legibleSpan) Status() sdktrace.Status {
	status := s.ReadOnlySpan.Status()
	status.Description = strings.ToValidUTF8(status.Description, "\uFFFD")
	return status
}

func legible(attributes []attribute.KeyValue) []attribute.KeyValue {
	all := append([]attribute.KeyValue(nil), attributes...)
	for i, a := range all {
		if text := a.Value.AsString(); a.Value.Type() == attribute.STRING && !utf8.ValidString(text) {
			all[i].Value = attribute.StringValue(strings.ToValidUTF8(text, "\uFFFD"))
		}
	}
	return all
}
