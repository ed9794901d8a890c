package events

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

// An Event is one object in two groups: v1 and events.k8s.io/v1 have the same fields with different names. As in kube-apiserver
// it is stored as v1, and converted for requests to events.k8s.io. The fields correspond one to one, so a round trip in either
// direction loses nothing.

func addEventConversions(scheme *runtime.Scheme) error {
	// The internal version of events.k8s.io is the core Event.
	scheme.AddKnownTypes(registry.InternalOf(eventsv1.GroupName), &corev1.Event{}, &corev1.EventList{})
	return cmp.Or(
		Fields().Register(scheme, eventsv1.SchemeGroupVersion.WithKind("Event")),
		scheme.AddConversionFunc((*eventsv1.Event)(nil), (*corev1.Event)(nil), func(a, b any, _ conversion.Scope) error {
			EventToCore(a.(*eventsv1.Event), b.(*corev1.Event))
			return nil
		}),
		scheme.AddConversionFunc((*corev1.Event)(nil), (*eventsv1.Event)(nil), func(a, b any, _ conversion.Scope) error {
			EventFromCore(a.(*corev1.Event), b.(*eventsv1.Event))
			return nil
		}),
		scheme.AddConversionFunc((*eventsv1.EventList)(nil), (*corev1.EventList)(nil), func(a, b any, _ conversion.Scope) error {
			in, out := a.(*eventsv1.EventList), b.(*corev1.EventList)
			out.ListMeta, out.Items = in.ListMeta, make([]corev1.Event, len(in.Items))
			for i := range in.Items {
				EventToCore(&in.Items[i], &out.Items[i])
			}
			return nil
		}),
		scheme.AddConversionFunc((*corev1.EventList)(nil), (*eventsv1.EventList)(nil), func(a, b any, _ conversion.Scope) error {
			in, out := a.(*corev1.EventList), b.(*eventsv1.EventList)
			out.ListMeta, out.Items = in.ListMeta, make([]eventsv1.Event, len(in.Items))
			for i := range in.Items {
				EventFromCore(&in.Items[i], &out.Items[i])
			}
			return nil
		}),
	)
}

func EventToCore(in *eventsv1.Event, out *corev1.Event) {
	*out = corev1.Event{
		ObjectMeta:          in.ObjectMeta,
		InvolvedObject:      in.Regarding,
		Related:             in.Related,
		Reason:              in.Reason,
		Message:             in.Note,
		Type:                in.Type,
		Action:              in.Action,
		EventTime:           in.EventTime,
		ReportingController: in.ReportingController,
		ReportingInstance:   in.ReportingInstance,
		Source:              in.DeprecatedSource,
		FirstTimestamp:      in.DeprecatedFirstTimestamp,
		LastTimestamp:       in.DeprecatedLastTimestamp,
		Count:               in.DeprecatedCount,
	}
	if in.Series != nil {
		out.Series = &corev1.EventSeries{Count: in.Series.Count, LastObservedTime: in.Series.LastObservedTime}
	}
}

func EventFromCore(in *corev1.Event, out *eventsv1.Event) {
	*out = eventsv1.Event{
		ObjectMeta:               in.ObjectMeta,
		Regarding:                in.InvolvedObject,
		Related:                  in.Related,
		Reason:                   in.Reason,
		Note:                     in.Message,
		Type:                     in.Type,
		Action:                   in.Action,
		EventTime:                in.EventTime,
		ReportingController:      in.ReportingController,
		ReportingInstance:        in.ReportingInstance,
		DeprecatedSource:         in.Source,
		DeprecatedFirstTimestamp: in.FirstTimestamp,
		DeprecatedLastTimestamp:  in.LastTimestamp,
		DeprecatedCount:          in.Count,
	}
	if in.Series != nil {
		out.Series = &eventsv1.EventSeries{Count: in.Series.Count, LastObservedTime: in.Series.LastObservedTime}
	}
}

// newEvents serves the events of the core group: the same storage with another group in the resource.
func newEvents(e *registry.Environment) rest.Storage {
	core := e.Storage(corev1.Resource("events"))
	store := *core.Store
	store.DefaultQualifiedResource.Group = eventsv1.GroupName
	store.SingularQualifiedResource.Group = eventsv1.GroupName
	strict := strictEvents{core.Strategy}
	store.CreateStrategy, store.UpdateStrategy = strict, strict
	return &registry.REST{Store: &store, Resource: core.Resource, Strategy: core.Strategy}
}

// strictEvents applies the rules of events.k8s.io to writes through that group. Writes through v1 are not restricted, because
// the oldest clients send arbitrary values.
type strictEvents struct{ registry.Strategy }

func (s strictEvents) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return Rules().Create(newerEvent(obj))
}

func (s strictEvents) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return Rules().Update(newerEvent(obj), newerEvent(old))
}

func Rules() validate.Rules {
	return validate.OnUpdate(validateNewEvent, validateNewEventUpdate).CheckFinalizers()
}

func newerEvent(obj runtime.Object) runtime.Object {
	out := &eventsv1.Event{}
	EventFromCore(obj.(*corev1.Event), out)
	return out
}

// Fields returns the selectable fields of events.k8s.io.
func Fields() *selectable.Fields {
	return selectable.Of(selectable.WithAliases(selectable.InNamespace("reason", "type"), newEventLabels()), func(set fields.Set, o *eventsv1.Event) {
		selectable.AddEvent(set, o.Regarding, o.DeprecatedSource.Component, o.ReportingController, o.Reason, o.Type)
	})
}

func newEventLabels() map[string]string {
	labels := map[string]string{"reportingController": "reportingComponent"}
	from, to := selectable.ObjectFields(selectable.Regarding), selectable.ObjectFields(selectable.Involved)
	for i := range from {
		labels[from[i]] = to[i]
	}
	return labels
}

func validateNewEvent(e *eventsv1.Event) field.ErrorList {
	errs := newEventBasics(e)
	errs = append(errs, validate.ObjectMeta(&e.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)...)
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
	return validate.EventContent{
		Namespace: e.Namespace, Reporter: e.ReportingController, Instance: e.ReportingInstance, Action: e.Action,
		Reason: e.Reason, Message: e.Note, About: e.Regarding, EventTime: e.EventTime.Time, ReporterField: "reportingController",
	}.Errors()
}

// validateNewEventUpdate allows only the series to change.
func validateNewEventUpdate(e, old *eventsv1.Event) field.ErrorList {
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
		// Clients send back the time that they have read, which has a precision of microseconds.
		{"eventTime", metav1.NewMicroTime(e.EventTime.Truncate(time.Microsecond)),
			metav1.NewMicroTime(old.EventTime.Truncate(time.Microsecond))},
		{"action", e.Action, old.Action},
		{"related", e.Related, old.Related},
		{"reportingController", e.ReportingController, old.ReportingController},
		{"reportingInstance", e.ReportingInstance, old.ReportingInstance},
	} {
		errs = append(errs, validate.Immutable(f.value, f.kept, field.NewPath(f.name))...)
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
