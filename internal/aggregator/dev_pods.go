package aggregator

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"portico.dev/internal/clients"
	"portico.dev/internal/run"
)

const (
	// pendingFor is how long a pod of `aggregator dev` waits for a scheduler before an Event explains why it is
	// Pending.
	pendingFor = 3 * time.Second
	// pendingPage limits the pods that are checked in one round.
	pendingPage = 500
)

// pendingMessage explains why a pod stays Pending in `aggregator dev` with this number of simulated Nodes.
func pendingMessage(nodes int) string {
	if nodes > 0 {
		return "no scheduler has placed this pod: `aggregator dev` runs none; start kube-scheduler with this cluster's kubeconfig, or set spec.nodeName of the pod to a Node (node-1)"
	}
	return "no scheduler has placed this pod: `aggregator dev` runs neither a scheduler nor a kubelet; start it with --nodes for simulated Nodes, and kube-scheduler with this cluster's kubeconfig"
}

// pendingPods writes an Event for each pod that no scheduler handles.
type pendingPods struct {
	nodes int // number of simulated Nodes
	log   *zap.Logger
}

// run checks for pending pods every pendingFor until ctx ends.
func (p *pendingPods) run(ctx context.Context, admin *rest.Config) error {
	client, err := clients.New(admin)
	if err != nil {
		return fmt.Errorf("client of an administrator: %w", err)
	}
	told := map[types.UID]bool{}
	for ctx.Err() == nil {
		round, cancel := context.WithTimeout(ctx, prepareTimeout)
		told, err = tellPending(round, client, pendingMessage(p.nodes), told, time.Now())
		cancel()
		if err != nil && ctx.Err() == nil {
			p.log.Debug("failed to check for pending pods", zap.Error(err))
		}
		run.Pause(ctx, pendingFor)
	}
	return nil
}

// tellPending writes the Events that are due, and returns the pods that have an Event and are still pending.
func tellPending(ctx context.Context, client *clients.Client, message string, told map[types.UID]bool, now time.Time) (map[types.UID]bool, error) {
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		FieldSelector: fields.AndSelectors(fields.OneTermEqualSelector("spec.nodeName", ""), fields.OneTermEqualSelector("status.phase", string(corev1.PodPending))).String(),
		Limit:         pendingPage,
	})
	if err != nil {
		return told, fmt.Errorf("list pending pods: %w", err)
	}
	still := map[types.UID]bool{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if told[pod.UID] {
			still[pod.UID] = true
			continue
		}
		if now.Sub(pod.CreationTimestamp.Time) < pendingFor || isLookedAt(pod) {
			continue
		}
		if err := writePendingEvent(ctx, client, pod, message); err != nil && !apierrors.IsAlreadyExists(err) {
			return still, err
		}
		still[pod.UID] = true
	}
	return still, nil
}

// isLookedAt reports whether a scheduler has handled a pod, or does not need to, because the pod is being deleted.
func isLookedAt(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return true
		}
	}
	return pod.DeletionTimestamp != nil
}

func writePendingEvent(ctx context.Context, client *clients.Client, pod *corev1.Pod, message string) error {
	now := metav1.Now()
	_, err := client.CoreV1().Events(pod.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: strings.TrimRight(fmt.Sprintf("%.200s", pod.Name), "-.") + "." + string(pod.UID), Namespace: pod.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		},
		Type: corev1.EventTypeWarning, Reason: "FailedScheduling", Message: message,
		Source: corev1.EventSource{Component: fieldManager}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("write event of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
