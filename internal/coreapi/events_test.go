package coreapi

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestEventIsServedInBothGroups(t *testing.T) {
	h := start(t, func(c *Config) { c.EventTTL = time.Hour })
	client := h.typed(t, admin)
	namespace(t, client, "work")
	ctx := within(t)
	about := corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: "work", Name: "a"}
	_, err := client.EventsV1().Events("work").Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "new"}, EventTime: metav1.NewMicroTime(time.Now()), Type: "Normal", Reason: "Tested",
		Action: "Testing", Note: "seen in both", Regarding: about, ReportingController: "example.com/test", ReportingInstance: "one",
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	old, err := client.CoreV1().Events("work").Get(ctx, "new", metav1.GetOptions{})
	if err != nil || old.Message != "seen in both" || old.InvolvedObject != about {
		t.Fatalf("GET of the event through core = %+v, %v, want its message and regarding object", old, err)
	}
	_, err = client.CoreV1().Events("work").Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "old"}, Type: "Warning", Reason: "Tested", Message: "from core", InvolvedObject: about, Count: 3,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.EventsV1().Events("work").List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=a,type=Warning"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Note != "from core" || list.Items[0].DeprecatedCount != 3 {
		t.Fatalf("list of events through events.k8s.io = %+v, %v, want one with the note \"from core\" and the count 3", list, err)
	}
	patched, err := client.EventsV1().Events("work").Patch(ctx, "old", types.StrategicMergePatchType,
		[]byte(`{"series":{"count":2,"lastObservedTime":"2026-01-01T00:00:00.000000Z"}}`), metav1.PatchOptions{})
	if err != nil || patched.Series == nil || patched.Series.Count != 2 {
		t.Fatalf("patch of the series = %+v, %v, want the count 2", patched, err)
	}
	w, err := client.EventsV1().Events("work").Watch(ctx, initialEvents)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e, ok := next(t, w).Object.(*eventsv1.Event); !ok || e.Regarding != about {
		t.Fatalf("watched event = %+v, want regarding %+v", e, about)
	}
	kvs, err := h.store.Client().KV.Get(ctx, "/registry/events/work/old")
	if err != nil || len(kvs.Kvs) != 1 || kvs.Kvs[0].Lease == 0 {
		t.Fatalf("event in etcd = %v, %v, want one value with a lease", kvs, err)
	}
}
