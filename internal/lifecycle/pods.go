package lifecycle

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/lifecycle/contents"
)

// podGrace is how long the pods that are left may take to go: the longest grace period among those still running, and
// zero once it has passed.
func (w *sweeper) podGrace(ctx context.Context, namespace string) (time.Duration, error) {
	var longest time.Duration
	options := metav1.ListOptions{Limit: contents.PageSize}
	for {
		var page *corev1.PodList
		err := contents.Bounded(ctx, func(ctx context.Context) (err error) {
			page, err = w.client.CoreV1().Pods(namespace).List(ctx, options)
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("list pods: %w", err)
		}
		for i := range page.Items {
			longest = max(longest, graceLeft(&page.Items[i], time.Now()))
		}
		if page.Continue == "" || page.Continue == options.Continue {
			return longest, nil
		}
		options.Continue = page.Continue
	}
}

func graceLeft(pod *corev1.Pod, now time.Time) time.Duration {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return 0
	}
	switch {
	case pod.DeletionTimestamp != nil:
		// The deletion time of a pod is in the future: when its grace ends.
		return max(0, pod.DeletionTimestamp.Sub(now))
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
	}
	return 0
}
