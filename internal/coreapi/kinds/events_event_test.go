package kinds_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"portico.dev/internal/coreapi/kinds/events"
	"portico.dev/internal/coreapi/kinds/kindtest"
)

func newer(t *testing.T) *eventsv1.Event {
	return kindtest.Decode[eventsv1.Event](t, "metadata: {name: a, namespace: ns, resourceVersion: '1'}\n"+
		"eventTime: '2026-01-01T00:00:00.000000Z'\ntype: Normal\nreason: R\naction: A\nreportingController: c\n"+
		"reportingInstance: i\nregarding: {namespace: ns}")
}

func TestNewEvents(t *testing.T) {
	for situation, c := range map[string]struct {
		change func(*eventsv1.Event)
		want   []string
	}{
		"no time": {func(e *eventsv1.Event) { e.EventTime = metav1.MicroTime{} }, []string{"eventTime: Required value"}},
		"neither normal nor a warning": {func(e *eventsv1.Event) { e.Type = "Odd" },
			[]string{`type: Invalid value: "": has invalid value: Odd`}},
		"a note like a log": {func(e *eventsv1.Event) { e.Note = strings.Repeat("x", 1025) },
			[]string{`message: Invalid value: "": can have at most 1024 characters`}},
		"a long reason": {func(e *eventsv1.Event) { e.Reason = strings.Repeat("x", 129) },
			[]string{`reason: Invalid value: "": can have at most 128 characters`}},
		"a series of one": {func(e *eventsv1.Event) { e.Series = &eventsv1.EventSeries{Count: 1} }, []string{
			`series.count: Invalid value: "": should be at least 2`, "series.lastObservedTime: Required value"}},
		"the fields of the old API": {func(e *eventsv1.Event) {
			e.DeprecatedCount, e.DeprecatedFirstTimestamp, e.DeprecatedLastTimestamp = 1, metav1.Unix(1, 0), metav1.Unix(1, 0)
			e.DeprecatedSource.Host = "h"
		}, []string{`count: Invalid value: "": needs to be unset`, `firstTimestamp: Invalid value: "": needs to be unset`,
			`lastTimestamp: Invalid value: "": needs to be unset`, `source: Invalid value: "": needs to be unset`}},
		"about a node, in kube-system": {func(e *eventsv1.Event) { e.Namespace, e.Regarding.Namespace = "kube-system", "" }, nil},
		"about a node, elsewhere": {func(e *eventsv1.Event) { e.Regarding.Namespace = "" },
			[]string{`involvedObject.namespace: Invalid value: "": does not match event.namespace`}},
	} {
		t.Run(situation, func(t *testing.T) {
			event := newer(t)
			c.change(event)
			kindtest.Refused(t, kindtest.CreateErrors(event), c.want...)
		})
	}
}

func TestEventsAllowOnlySeriesUpdates(t *testing.T) {
	kindtest.Changes(t, newer(t), map[string]kindtest.Change[*eventsv1.Event]{
		"the series goes on": {func(e *eventsv1.Event) {
			e.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(time.Unix(2, 0))}
		}, nil},
		"less than a microsecond is lost on the way": {func(e *eventsv1.Event) { e.EventTime.Time = e.EventTime.Add(999) }, nil},
		"another time": {func(e *eventsv1.Event) { e.EventTime.Time = e.EventTime.Add(time.Second) },
			[]string{"eventTime: Invalid value: ..."}},
		"another story": {func(e *eventsv1.Event) { e.Note, e.Reason = "n", "S" }, []string{
			`message: Invalid value: "n": field is immutable`, `reason: Invalid value: "S": field is immutable`}},
	})
}

func TestEventConversionIsLossless(t *testing.T) {
	t.Run("from core and back", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			in := rapid.Make[corev1.Event]().Draw(t, "event")
			in.TypeMeta = metav1.TypeMeta{}
			var between eventsv1.Event
			var out corev1.Event
			events.EventFromCore(&in, &between)
			events.EventToCore(&between, &out)
			if !reflect.DeepEqual(in, out) {
				t.Fatalf("event after both conversions = %+v, want %+v", out, in)
			}
		})
	})
	t.Run("to core and back", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			in := rapid.Make[eventsv1.Event]().Draw(t, "event")
			in.TypeMeta = metav1.TypeMeta{}
			var between corev1.Event
			var out eventsv1.Event
			events.EventToCore(&in, &between)
			events.EventFromCore(&between, &out)
			if !reflect.DeepEqual(in, out) {
				t.Fatalf("event after both conversions = %+v, want %+v", out, in)
			}
		})
	})
}
