package coreapi

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

var initialEvents = metav1.ListOptions{
	SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
}

// next returns the next event that is not a periodic bookmark.
func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatal("the watch ended, want an event")
			}
			if e.Type == watch.Bookmark && !endsInitialEvents(e.Object) {
				continue
			}
			return e
		case <-timer.C:
			t.Fatal("no event arrived in time, want one")
		}
	}
}

func endsInitialEvents(obj runtime.Object) bool {
	m, ok := obj.(metav1.Object)
	return ok && m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

func TestWatchBeginsWithExistingObjects(t *testing.T) {
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "work")
	ctx := within(t)

	t.Run("of a kind with a watch cache", func(t *testing.T) {
		mustCreate(t, client, configMap("before", nil))
		w, err := client.CoreV1().ConfigMaps("work").Watch(ctx, initialEvents)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		if e := next(t, w); e.Type != watch.Added || e.Object.(*corev1.ConfigMap).Name != "before" {
			t.Fatalf("first event = %v, want ADDED of before", e)
		}
		bookmark := next(t, w)
		if bookmark.Type != watch.Bookmark || bookmark.Object.(*corev1.ConfigMap).ResourceVersion == "" {
			t.Fatalf("event after the initial objects = %v, want a bookmark with a resourceVersion", bookmark)
		}
		mustCreate(t, client, configMap("after", nil))
		if e := next(t, w); e.Type != watch.Added || e.Object.(*corev1.ConfigMap).Name != "after" {
			t.Fatalf("event after the create = %v, want ADDED of after", e)
		}
		if err := client.CoreV1().ConfigMaps("work").Delete(ctx, "before", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if e := next(t, w); e.Type != watch.Deleted || e.Object.(*corev1.ConfigMap).Name != "before" {
			t.Fatalf("event after the delete = %v, want DELETED of before", e)
		}
	})
	t.Run("of a kind without one", func(t *testing.T) {
		w, err := client.FlowcontrolV1().FlowSchemas().Watch(ctx, initialEvents)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		if e := next(t, w); e.Type != watch.Bookmark {
			t.Fatalf("first event = %v, want a bookmark", e)
		}
		schema := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "fs"}, Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "plc"}, MatchingPrecedence: 1000,
		}}
		if _, err := client.FlowcontrolV1().FlowSchemas().Create(ctx, schema, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if e := next(t, w); e.Type != watch.Added {
			t.Fatalf("event after the create = %v, want ADDED", e)
		}
	})
	t.Run("of one object", func(t *testing.T) {
		mustCreate(t, client, configMap("one", nil))
		options := initialEvents
		options.FieldSelector = "metadata.name=one"
		w, err := client.CoreV1().ConfigMaps("work").Watch(ctx, options)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		if e := next(t, w); e.Type != watch.Added || e.Object.(*corev1.ConfigMap).Name != "one" {
			t.Fatalf("first event = %v, want ADDED of one", e)
		}
		if e := next(t, w); e.Type != watch.Bookmark {
			t.Fatalf("second event = %v, want a bookmark", e)
		}
	})
}

func TestWatchFromVersionGetsEveryLaterEvent(t *testing.T) {
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "work")
	first := mustCreate(t, client, configMap("first", nil))
	mustCreate(t, client, configMap("second", nil))
	w, err := client.CoreV1().ConfigMaps("work").Watch(within(t), metav1.ListOptions{ResourceVersion: first.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := next(t, w); e.Type != watch.Added || e.Object.(*corev1.ConfigMap).Name != "second" {
		t.Fatalf("first event after the version = %v, want ADDED of second", e)
	}
}

func TestWatchEndsAtItsTimeout(t *testing.T) {
	t.Parallel()
	h := start(t)
	w, err := h.typed(t, admin).CoreV1().ConfigMaps("").Watch(within(t), metav1.ListOptions{TimeoutSeconds: new(int64(1))})
	if err != nil {
		t.Fatal(err)
	}
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			t.Fatalf("the watch ended with the error %v, want no error", apierrors.FromObject(e.Object))
		}
	}
}

func TestInformersSync(t *testing.T) {
	t.Parallel()
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "work")
	mustCreate(t, client, configMap("seen", nil))
	ctx, cancel := context.WithCancel(within(t))
	factory := informers.NewSharedInformerFactory(client, 0)
	maps := factory.Core().V1().ConfigMaps().Lister()
	policies := factory.Admissionregistration().V1().ValidatingAdmissionPolicies().Informer()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), factory.Core().V1().ConfigMaps().Informer().HasSynced, policies.HasSynced) {
		t.Fatal("the informers did not sync in time, want both synced")
	}
	if _, err := maps.ConfigMaps("work").Get("seen"); err != nil {
		t.Fatal(err)
	}
}
