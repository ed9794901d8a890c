package aggregator

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portico.dev/internal/clients"
)

// A pod without a scheduler gets one Event with the reason why it stays Pending.
func TestPendingPodWithoutSchedulerGetsEvent(t *testing.T) {
	t.Parallel()
	admin, stop := open(t, t.TempDir(), func(c *Config) { c.Admission.Disable = []string{"ServiceAccount"} })
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	client, err := clients.New(admin)
	if err != nil {
		t.Fatal(err)
	}
	ctx, now := t.Context(), time.Now().Add(time.Hour)
	pods := client.CoreV1().Pods("kube-system")
	for name, node := range map[string]string{"waits": "", "runs": "n1"} {
		_, err := pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	if told, err := tellPending(ctx, client, pendingMessage(0), map[types.UID]bool{}, now.Add(-2*time.Hour)); err != nil || len(told) != 0 {
		t.Errorf("tellPending for a new pod = %v, %v; want none and no error", told, err)
	}
	told, err := tellPending(ctx, client, pendingMessage(0), map[types.UID]bool{}, now)
	if err == nil {
		told, err = tellPending(ctx, client, pendingMessage(0), told, now)
	}
	if err != nil || len(told) != 1 {
		t.Fatalf("tellPending = %v, %v; want one pod and no error", told, err)
	}
	if _, err := tellPending(ctx, client, pendingMessage(0), map[types.UID]bool{}, now); err != nil { // as after a restart
		t.Error(err)
	}
	events, err := client.CoreV1().Events("kube-system").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(events.Items) != 1 || events.Items[0].InvolvedObject.Name != "waits" || events.Items[0].Message != pendingMessage(0) {
		t.Errorf("events = %+v, want one of the pod waits", events.Items)
	}
}
