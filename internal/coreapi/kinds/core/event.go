package core

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

// eventTTL returns the lifetime of events, 0 for no limit.
func eventTTL(e *registry.Environment) time.Duration { return e.EventTTL }

func eventResource() registry.Resource {
	return registry.Resource{
		Name: "events", Singular: "event", ShortNames: []string{"ev"},
		Object: &corev1.Event{}, List: &corev1.EventList{}, TTL: eventTTL, AllowCreateOnUpdate: true, AllowUnconditionalUpdate: true,
		Samples: []string{
			"metadata: {name: b, namespace: ns}\n" +
				"involvedObject: {kind: ConfigMap, name: a, namespace: ns}\n" +
				"reason: Started",
			"metadata: {name: a, namespace: default}\n" +
				"involvedObject: {kind: Node, name: n}\n" +
				"reason: Started",
		},
		Rules:   validate.SameOnUpdate(validateEvent),
		Columns: eventColumns,
		Fields:  eventFields(),
	}
}

// occurrence contains the fields of both Event kinds under common names. kube-apiserver stores both as one kind and prints them
// alike.
type occurrence struct {
	name, kind, reason, message string
	object                      corev1.ObjectReference
	source                      corev1.EventSource
	reporter, instance          string
	eventTime, first, last      time.Time
	seriesLast                  *time.Time
	count                       int32
}

func eventColumns() columns.Printer {
	return columns.Show(func(e *corev1.Event, now time.Time) []any {
		o := occurrence{
			name: e.Name, kind: e.Type, reason: e.Reason, message: e.Message, object: e.InvolvedObject, source: e.Source,
			reporter: e.ReportingController, instance: e.ReportingInstance,
			eventTime: e.EventTime.Time, first: e.FirstTimestamp.Time, last: e.LastTimestamp.Time, count: e.Count,
		}
		if e.Series != nil {
			o.count, o.seriesLast = e.Series.Count, &e.Series.LastObservedTime.Time
		}
		return o.cells(now)
	}, eventColumnDefinitions()...)
}

func eventColumnDefinitions() []metav1.TableColumnDefinition {
	doc := corev1.Event{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		columns.Text("Last Seen", doc["lastTimestamp"]),
		columns.Text("Type", doc["type"]),
		columns.Text("Reason", doc["reason"]),
		columns.Text("Object", doc["involvedObject"]),
		columns.Wide(columns.Text("Subobject", corev1.ObjectReference{}.SwaggerDoc()["fieldPath"])),
		columns.Wide(columns.Text("Source", doc["source"])),
		columns.Text("Message", doc["message"]),
		columns.Wide(columns.Text("First Seen", doc["firstTimestamp"])),
		columns.Wide(columns.Text("Count", doc["count"])),
		columns.Wide(columns.Name()),
	}
}

func (o occurrence) cells(now time.Time) []any {
	first := columns.Since(o.first, now)
	if o.first.IsZero() {
		first = columns.Since(o.eventTime, now)
	}
	last := first
	switch {
	case o.seriesLast != nil:
		last = columns.Since(*o.seriesLast, now)
	case !o.last.IsZero():
		last = columns.Since(o.last, now)
	}
	count := o.count
	if count == 0 && o.seriesLast == nil {
		count = 1 // the newer API has no count for a single occurrence
	}
	object := strings.ToLower(o.object.Kind)
	if o.object.Name != "" {
		object += "/" + o.object.Name
	}
	return []any{
		last, o.kind, o.reason, object, o.object.FieldPath, o.reportedBy(), strings.TrimSpace(o.message), first,
		int64(count), o.name,
	}
}

// reportedBy prefers the source, which clients of the old API set, over the reporting controller.
func (o occurrence) reportedBy() string {
	by := columns.OrElse(o.source.Component, o.reporter)
	if on := columns.OrElse(o.source.Host, o.instance); on != "" {
		by += ", " + on
	}
	return by
}

func eventFields() *selectable.Fields {
	return selectable.Of(selectable.InNamespace(append(selectable.ObjectFields(selectable.Involved), "reason", "reportingComponent", "source", "type")...), func(set fields.Set, o *corev1.Event) {
		selectable.AddEvent(set, o.InvolvedObject, o.Source.Component, o.ReportingController, o.Reason, o.Type)
	})
}

// validateEvent has no further checks: clients of the oldest API write arbitrary values.
func validateEvent(e *corev1.Event) field.ErrorList {
	return validate.EventContent{
		Namespace: e.Namespace, Reporter: e.ReportingController, Instance: e.ReportingInstance, Action: e.Action,
		Reason: e.Reason, Message: e.Message, About: e.InvolvedObject, EventTime: e.EventTime.Time, ReporterField: "reportingComponent",
	}.Errors()
}
