package coreapi

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestScheduledPodsWaitForTheirGracePeriod(t *testing.T) {
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "work")
	ctx := within(t)
	pods := client.CoreV1().Pods("work")
	for _, c := range []struct {
		name, node string
		gone       bool
	}{
		{"a pod that no node runs goes at once", "", true},
		{"a pod on a node waits for its kubelet", "node", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, Spec: corev1.PodSpec{
				NodeName: c.node, Containers: []corev1.Container{{Name: "c", Image: "i"}},
			}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			left, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
			if c.gone {
				if !apierrors.IsNotFound(err) {
					t.Fatalf("GET of the deleted pod = %v, %v, want NotFound", left, err)
				}
				return
			}
			if err != nil || left.DeletionTimestamp == nil || *left.DeletionGracePeriodSeconds != 30 {
				t.Fatalf("GET of the deleted pod = %v, %v, want a deletionTimestamp and 30 seconds of grace", left, err)
			}
			// A kubelet sends this delete after the processes stopped.
			if err := pods.Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0)); err != nil {
				t.Fatal(err)
			}
			if _, err := pods.Get(ctx, pod.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Fatalf("GET after the delete without grace: error = %v, want NotFound", err)
			}
		})
	}
}
