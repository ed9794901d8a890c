package coreapi

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

// An Event is one object that two groups show: v1 and events.k8s.io/v1 have the same fields under other names. It is
// stored as v1, as kube-apiserver stores it, and converted on its way in and out of events.k8s.io. Every field has a
// partner, so that a round trip in either direction loses nothing.

func addEventConversions(scheme *runtime.Scheme) error {
	// The internal version of events.k8s.io is the core Event.
	scheme.AddKnownTypes(internalOf(eventsv1.GroupName), &corev1.Event{}, &corev1.EventList{})
	return firstError(
		selectable.NewEventFields().Register(scheme, eventsv1.SchemeGroupVersion.WithKind("Event")),
		scheme.AddConversionFunc((*eventsv1.Event)(nil), (*corev1.Event)(nil), func(a, b any, _ conversion.Scope) error {
			eventToCore(a.(*eventsv1.Event), b.(*corev1.Event))
			return nil
		}),
		scheme.AddConversionFunc((*corev1.Event)(nil), (*eventsv1.Event)(nil), func(a, b any, _ conversion.Scope) error {
			eventFromCore(a.(*corev1.Event), b.(*eventsv1.Event))
			return nil
		}),
		scheme.AddConversionFunc((*eventsv1.EventList)(nil), (*corev1.EventList)(nil), func(a, b any, _ conversion.Scope) error {
			in, out := a.(*eventsv1.EventList), b.(*corev1.EventList)
			out.ListMeta, out.Items = in.ListMeta, make([]corev1.Event, len(in.Items))
			for i := range in.Items {
				eventToCore(&in.Items[i], &out.Items[i])
			}
			return nil
		}),
		scheme.AddConversionFunc((*corev1.EventList)(nil), (*eventsv1.EventList)(nil), func(a, b any, _ conversion.Scope) error {
			in, out := a.(*corev1.EventList), b.(*eventsv1.EventList)
			out.ListMeta, out.Items = in.ListMeta, make([]eventsv1.Event, len(in.Items))
			for i := range in.Items {
				eventFromCore(&in.Items[i], &out.Items[i])
			}
			return nil
		}),
	)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func eventToCore(in *eventsv1.Event, out *corev1.Event) {
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

func eventFromCore(in *corev1.Event, out *eventsv1.Event) {
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

// strictEvents holds what is written through events.k8s.io to the rules of that group. Through v1 the oldest clients write
// whatever they like, and the object is the same.
type strictEvents struct{ strategy }

func (s strictEvents) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return newEventRules().Create(newerEvent(obj))
}

func (s strictEvents) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return newEventRules().Update(newerEvent(obj), newerEvent(old))
}

func newEventRules() validate.Rules {
	return validate.Changing(validate.ValidateNewEvent, validate.ValidateNewEventUpdate)
}

func newerEvent(obj runtime.Object) runtime.Object {
	out := &eventsv1.Event{}
	eventFromCore(obj.(*corev1.Event), out)
	return out
}
