package columns

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// occurrence is what both Event kinds say, under one set of names: kube-apiserver stores them as one kind and prints
// them alike.
type occurrence struct {
	name, kind, reason, message string
	object                      corev1.ObjectReference
	source                      corev1.EventSource
	reporter, instance          string
	eventTime, first, last      time.Time
	seriesLast                  *time.Time
	count                       int32
}

func EventColumns() Printer {
	return show(func(e *corev1.Event, now time.Time) []any {
		o := occurrence{
			name: e.Name, kind: e.Type, reason: e.Reason, message: e.Message, object: e.InvolvedObject, source: e.Source,
			reporter: e.ReportingController, instance: e.ReportingInstance,
			eventTime: e.EventTime.Time, first: e.FirstTimestamp.Time, last: e.LastTimestamp.Time, count: e.Count,
		}
		if e.Series != nil {
			o.count, o.seriesLast = e.Series.Count, &e.Series.LastObservedTime.Time
		}
		return o.cells(now)
	}, eventColumns()...)
}

func eventColumns() []metav1.TableColumnDefinition {
	doc := corev1.Event{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		text("Last Seen", doc["lastTimestamp"]),
		text("Type", doc["type"]),
		text("Reason", doc["reason"]),
		text("Object", doc["involvedObject"]),
		wide(text("Subobject", corev1.ObjectReference{}.SwaggerDoc()["fieldPath"])),
		wide(text("Source", doc["source"])),
		text("Message", doc["message"]),
		wide(text("First Seen", doc["firstTimestamp"])),
		wide(text("Count", doc["count"])),
		wide(name()),
	}
}

func (o occurrence) cells(now time.Time) []any {
	first := since(o.first, now)
	if o.first.IsZero() {
		first = since(o.eventTime, now)
	}
	last := first
	switch {
	case o.seriesLast != nil:
		last = since(*o.seriesLast, now)
	case !o.last.IsZero():
		last = since(o.last, now)
	}
	count := o.count
	if count == 0 && o.seriesLast == nil {
		count = 1 // the newer API has no count for what happened once
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

// reportedBy prefers the old source, which clients of the old API fill in, over the reporting controller.
func (o occurrence) reportedBy() string {
	by := orElse(o.source.Component, o.reporter)
	if on := orElse(o.source.Host, o.instance); on != "" {
		by += ", " + on
	}
	return by
}
