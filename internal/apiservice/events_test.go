package apiservice

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	libraryevents "k8s.io/client-go/tools/events"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// standing returns an APIService whose Available condition has a status, or no conditions for "".
func standing(name, status, reason string) *apiregistrationv1.APIService {
	o := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec:       apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "test", Name: "server"}},
	}
	if status != "" {
		o.Status.Conditions = []apiregistrationv1.APIServiceCondition{available(condition(apiregistrationv1.ConditionStatus(status), reason, "message"))}
	}
	return o
}

func TestAvailabilityChangesAreEvents(t *testing.T) {
	local := standing("x", "True", reasonLocal)
	local.Spec.Service = nil
	for name, c := range map[string]struct {
		before, after *apiregistrationv1.APIService
		reason        string // "" for no event
	}{
		"a backend went":             {standing("x", "True", reasonPassed), standing("x", "False", "A"), backendUnavailable},
		"nobody knows any more":      {standing("x", "True", reasonPassed), standing("x", "Unknown", "A"), backendUnavailable},
		"a backend returned":         {standing("x", "False", "A"), standing("x", "True", reasonPassed), backendAvailable},
		"another reason":             {standing("x", "False", "A"), standing("x", "False", "B"), ""},
		"a new one that is well":     {standing("x", "", ""), standing("x", "True", reasonPassed), ""},
		"a new one that is not well": {standing("x", "", ""), standing("x", "False", "A"), ""},
		"it is served here now":      {standing("x", "False", "A"), local, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := availabilityEventOf(c.before, c.after)
			if ok != (c.reason != "") || got.reason != c.reason {
				t.Errorf("availabilityEventOf() = %+v, %t, want reason %q", got, ok, c.reason)
			}
		})
	}
}

func TestReplicaDisagreementIsEvent(t *testing.T) {
	with := func(status, reason string) *apiregistrationv1.APIService {
		o := standing("x", "True", reasonPassed)
		if status != "" {
			o.Status.Conditions = append(o.Status.Conditions, apiregistrationv1.APIServiceCondition{
				Type: AvailableOnAllReplicas, Status: apiregistrationv1.ConditionStatus(status), Reason: reason,
			})
		}
		return o
	}
	for name, c := range map[string]struct {
		before, after *apiregistrationv1.APIService
		reason        string // "" for nothing
	}{
		"the first time":      {with("", ""), with("False", someReplicas), backendUnavailableOnSome},
		"one is cut off":      {with("True", "AllReplicas"), with("False", someReplicas), backendUnavailableOnSome},
		"another one too":     {with("False", someReplicas), with("False", someReplicas), ""},
		"none reaches it":     {with("False", someReplicas), with("False", "NoReplica"), ""},
		"all reach it":        {with("False", someReplicas), with("True", "AllReplicas"), backendAvailableOnAll},
		"back from nothing":   {with("False", "NoReplica"), with("True", "AllReplicas"), ""},
		"one replica is left": {with("False", someReplicas), with("", ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := replicasEventOf(c.before, c.after); ok != (c.reason != "") || got.reason != c.reason {
				t.Errorf("replicasEventOf() = %+v, %t, want reason %q", got, ok, c.reason)
			}
		})
	}
}

// runRecorder runs an eventRecorder in a bubble until the test ends.
func runRecorder(t *testing.T) (*eventRecorder, func() []corev1.Event) {
	t.Helper()
	client := kubefake.NewClientset()
	h := newEventRecorder(client.CoreV1().Events(metav1.NamespaceDefault), "replica-a", zaptest.NewLogger(t))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h, func() []corev1.Event {
		list, err := client.CoreV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
}

func TestEventRefersToItsAPIService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, events := runRecorder(t)
		h.record(standing("v1.example.com", "True", reasonPassed), standing("v1.example.com", "False", reasonFailedDiscoveryCheck))
		synctest.Wait()
		got := events()
		if len(got) != 1 {
			t.Fatalf("%d events, want 1", len(got))
		}
		e := got[0]
		about := corev1.ObjectReference{APIVersion: "apiregistration.k8s.io/v1", Kind: "APIService", Name: "v1.example.com", UID: "uid-v1.example.com"}
		if e.Namespace != "default" || e.InvolvedObject != about {
			t.Errorf("event in namespace %s about %+v, want default and %+v", e.Namespace, e.InvolvedObject, about)
		}
		if e.Type != "Warning" || e.Reason != backendUnavailable || e.Message != "FailedDiscoveryCheck: message" || e.Count != 1 {
			t.Errorf("event = %s %s %q, count %d, want Warning %s, message of the condition, count 1", e.Type, e.Reason, e.Message, e.Count, backendUnavailable)
		}
		if e.Source.Component != "portico" || e.ReportingInstance != "replica-a" || e.FirstTimestamp.IsZero() || !strings.HasPrefix(e.Name, "v1.example.com.") {
			t.Errorf("event = %+v, want source portico, instance replica-a, a first timestamp and a name that begins with v1.example.com.", e)
		}
	})
}

func TestFlappingBackendUpdatesCountOfTwoEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, events := runRecorder(t)
		up, down := standing("x", "True", reasonPassed), standing("x", "False", "A")
		const flaps = 100
		for range flaps {
			h.record(up, down)
			time.Sleep(500 * time.Millisecond)
			h.record(down, up)
			time.Sleep(500 * time.Millisecond)
		}
		synctest.Wait()
		got := events()
		if len(got) != 2 {
			t.Fatalf("%d events of a flapping backend, want 2", len(got))
		}
		for _, e := range got {
			if e.Count < flaps-int32(countInterval/time.Second) || e.Count > flaps || !e.LastTimestamp.After(e.FirstTimestamp.Time) {
				t.Errorf("event %s has count %d from %v to %v, want about %d and a later last timestamp", e.Reason, e.Count, e.FirstTimestamp, e.LastTimestamp, flaps)
			}
		}
	})
}

func TestEventRateIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, events := runRecorder(t)
		for i := range 200 {
			name := strings.Repeat("x", i+1)
			h.record(standing(name, "True", reasonPassed), standing(name, "False", "A"))
		}
		time.Sleep(time.Second)
		if n := len(events()); n < eventBurst || n > eventBurst+2*eventsPerSecond {
			t.Errorf("%d events in the first second, want %d to %d", n, eventBurst, eventBurst+2*eventsPerSecond)
		}
		time.Sleep(time.Minute)
		if n := len(events()); n != 200 {
			t.Errorf("%d events after a minute, want 200", n)
		}
	})
}

// TestEventsMatchClientGoRecorder compares eventRecorder with k8s.io/client-go/tools/events. Both write the same event for one change.
// They differ in the points that docs/decisions/0011-limits.md gives as the reasons for eventRecorder: client-go writes all Events of an
// outage at once, and updates the count of a flapping backend up to half an hour late.
func TestEventsMatchClientGoRecorder(t *testing.T) {
	library := func(t *testing.T) (record func(before, after *apiregistrationv1.APIService), events func() []eventsv1.Event) {
		t.Helper()
		client := kubefake.NewClientset()
		broadcaster := libraryevents.NewBroadcaster(&libraryevents.EventSinkImpl{Interface: client.EventsV1()})
		ctx, cancel := context.WithCancel(t.Context())
		if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { broadcaster.Shutdown(); cancel() })
		scheme := runtime.NewScheme()
		if err := apiregistrationv1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		recorder := broadcaster.NewRecorder(scheme, eventSource)
		return func(before, after *apiregistrationv1.APIService) {
				if e, ok := availabilityEventOf(before, after); ok {
					recorder.Eventf(after, nil, e.kind, e.reason, "Probe", "%s", e.message)
				}
			}, func() []eventsv1.Event {
				list, err := client.EventsV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return list.Items
			}
	}
	up, down := standing("x", "True", reasonPassed), standing("x", "False", "A")

	t.Run("one change", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			own, ownEvents := runRecorder(t)
			record, events := library(t)
			own.record(up, down)
			record(up, down)
			time.Sleep(time.Second)
			ours, theirs := ownEvents(), events()
			if len(ours) != 1 || len(theirs) != 1 {
				t.Fatalf("%d events of ours and %d of client-go, want 1 and 1", len(ours), len(theirs))
			}
			a, b := ours[0], theirs[0]
			if a.Type != b.Type || a.Reason != b.Reason || a.Message != b.Note || a.ReportingController != b.ReportingController ||
				a.Namespace != b.Namespace || a.InvolvedObject.Name != b.Regarding.Name || a.InvolvedObject.UID != b.Regarding.UID {
				t.Errorf("event = %+v, want the same as client-go's %+v", a, b)
			}
		})
	})
	t.Run("many backends at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			record, events := library(t)
			for i := range 200 {
				name := strings.Repeat("x", i+1)
				record(standing(name, "True", reasonPassed), standing(name, "False", "A"))
				time.Sleep(time.Millisecond) // client-go's queue drops events that arrive faster
			}
			time.Sleep(time.Second)
			if n := len(events()); n <= eventBurst+2*eventsPerSecond {
				t.Errorf("client-go wrote %d events in a second, want more than %d: it limits the rate", n, eventBurst+2*eventsPerSecond)
			}
		})
	})
	t.Run("a flapping backend", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			own, ownEvents := runRecorder(t)
			record, events := library(t)
			const flaps = 100
			for range flaps {
				own.record(up, down)
				record(up, down)
				time.Sleep(time.Second)
			}
			ours, theirs := ownEvents(), events()
			if len(ours) != 1 || len(theirs) != 1 || ours[0].Count < flaps-int32(countInterval/time.Second) {
				t.Fatalf("events of ours = %+v, of client-go = %+v, want 1 each, ours with the count up to date", ours, theirs)
			}
			if theirs[0].Series == nil || theirs[0].Series.Count > flaps/10 {
				t.Errorf("client-go's series = %+v, want a late count of at most %d", theirs[0].Series, flaps/10)
			}
		})
	})
}
