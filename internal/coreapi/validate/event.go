package validate

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxEventWords = 128  // of reportingInstance, action and reason
	maxEventNote  = 1024 // of the message
)

// happening is what both Event kinds are checked for. Errors use core/v1's field names for both, as kube-apiserver does, but
// for the reporter's.
type happening struct {
	namespace, reporter, instance, action, reason, message string
	about                                                  corev1.ObjectReference
	reporterField                                          string
	eventTime                                              time.Time
}

// ValidateEvent is checked no further: clients of the oldest API write whatever they like.
func ValidateEvent(e *corev1.Event) field.ErrorList {
	return happening{
		namespace: e.Namespace, reporter: e.ReportingController, instance: e.ReportingInstance, action: e.Action,
		reason: e.Reason, message: e.Message, about: e.InvolvedObject, eventTime: e.EventTime.Time, reporterField: "reportingComponent",
	}.errors()
}

func ValidateNewEvent(e *eventsv1.Event) field.ErrorList {
	errs := newEventBasics(e)
	errs = append(errs, objectMeta(&e.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)...)
	errs = append(errs, eventSeries(e.Series)...)
	if e.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", "has invalid value: "+e.Type))
	}
	for _, old := range []struct {
		name string
		said bool
	}{
		{"firstTimestamp", !e.DeprecatedFirstTimestamp.IsZero()},
		{"lastTimestamp", !e.DeprecatedLastTimestamp.IsZero()},
		{"count", e.DeprecatedCount != 0},
		{"source", e.DeprecatedSource != corev1.EventSource{}},
	} {
		if old.said {
			errs = append(errs, field.Invalid(field.NewPath(old.name), "", "needs to be unset"))
		}
	}
	return errs
}

func newEventBasics(e *eventsv1.Event) field.ErrorList {
	return happening{
		namespace: e.Namespace, reporter: e.ReportingController, instance: e.ReportingInstance, action: e.Action,
		reason: e.Reason, message: e.Note, about: e.Regarding, eventTime: e.EventTime.Time, reporterField: "reportingController",
	}.errors()
}

// ValidateNewEventUpdate lets only the series go on: everything else is history.
func ValidateNewEventUpdate(e, old *eventsv1.Event) field.ErrorList {
	errs := newEventBasics(e)
	if !apiequality.Semantic.DeepEqual(e.Series, old.Series) {
		errs = append(errs, eventSeries(e.Series)...)
	}
	for _, f := range []struct {
		name        string
		value, kept any
	}{
		{"involvedObject", e.Regarding, old.Regarding},
		{"reason", e.Reason, old.Reason},
		{"message", e.Note, old.Note},
		{"source", e.DeprecatedSource, old.DeprecatedSource},
		{"firstTimestamp", e.DeprecatedFirstTimestamp, old.DeprecatedFirstTimestamp},
		{"lastTimestamp", e.DeprecatedLastTimestamp, old.DeprecatedLastTimestamp},
		{"count", e.DeprecatedCount, old.DeprecatedCount},
		{"type", e.Type, old.Type},
		// A client may send back the time that it read, which has lost what is finer than a microsecond.
		{"eventTime", metav1.NewMicroTime(e.EventTime.Truncate(time.Microsecond)),
			metav1.NewMicroTime(old.EventTime.Truncate(time.Microsecond))},
		{"action", e.Action, old.Action},
		{"related", e.Related, old.Related},
		{"reportingController", e.ReportingController, old.ReportingController},
		{"reportingInstance", e.ReportingInstance, old.ReportingInstance},
	} {
		errs = append(errs, immutable(f.value, f.kept, field.NewPath(f.name))...)
	}
	return errs
}

func eventSeries(s *eventsv1.EventSeries) field.ErrorList {
	var errs field.ErrorList
	if s == nil {
		return nil
	}
	if s.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series.count"), "", "should be at least 2"))
	}
	if s.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series.lastObservedTime"), ""))
	}
	return errs
}

// errors tells events of the newer kind by their eventTime, and holds only those to the newer rules.
func (h happening) errors() field.ErrorList {
	var errs field.ErrorList
	if !h.namespaceAgrees() {
		errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), h.about.Namespace,
			"does not match event.namespace"))
	}
	if !h.eventTime.IsZero() {
		if h.reporter == "" {
			errs = append(errs, field.Required(field.NewPath(h.reporterField), ""))
		}
		errs = append(errs, qualified(h.reporter, field.NewPath(h.reporterField))...)
		errs = append(errs, words(h.instance, "reportingInstance")...)
		errs = append(errs, words(h.action, "action")...)
		errs = append(errs, words(h.reason, "reason")...)
		errs = append(errs, atMost(h.message, "message", maxEventNote)...)
	}
	return append(errs, invalid(field.NewPath("namespace"), h.namespace, utilvalidation.IsDNS1123Subdomain(h.namespace))...)
}

// namespaceAgrees asks for an event to be in the namespace of what it is about, so that who may not see the object does
// not read of it; events about cluster-scoped objects are in default (or, the newer ones, in kube-system).
func (h happening) namespaceAgrees() bool {
	switch {
	case h.about.Namespace == "" && h.eventTime.IsZero():
		return h.namespace == metav1.NamespaceNone || h.namespace == metav1.NamespaceDefault
	case h.about.Namespace == "":
		return h.namespace == metav1.NamespaceDefault || h.namespace == metav1.NamespaceSystem
	case h.eventTime.IsZero():
		return h.namespace == h.about.Namespace
	}
	return true
}

func words(value, name string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(field.NewPath(name), "")}
	}
	return atMost(value, name, maxEventWords)
}

func atMost(value, name string, limit int) field.ErrorList {
	if len(value) <= limit {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(name), "", fmt.Sprintf("can have at most %d characters", limit))}
}
