package clients

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/clients/clientstest"
)

func TestWatchesReceiveSeparateCopies(t *testing.T) {
	client := clientstest.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: "default"}})
	maps := client.CoreV1().ConfigMaps("default")
	received := make([]*corev1.ConfigMap, 2)
	for i := range received {
		events, err := maps.Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer events.Stop()
		received[i] = (<-events.ResultChan()).Object.(*corev1.ConfigMap)
	}
	if received[0] == received[1] {
		t.Error("two watches received the same object, want copies")
	}
	received[0].Labels = map[string]string{"changed": "here"}
	stored, err := maps.Get(t.Context(), "settings", metav1.GetOptions{})
	if err != nil || len(stored.Labels) > 0 {
		t.Errorf("Get after a received object was changed = %v, labels %v; want none", err, stored.Labels)
	}
}

func TestStoppedWatchLeavesNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine stays
		client := clientstest.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: "default"}})
		events, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // its event waits to be received
		events.Stop()
		events.Stop()
	})
}
