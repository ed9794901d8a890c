package columns

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func PodColumns() Printer {
	spec, status := corev1.PodSpec{}.SwaggerDoc(), corev1.PodStatus{}.SwaggerDoc()
	p := show(podCells, name(),
		text("Ready", "How many containers of the pod are ready, of how many"),
		text("Status", "What the pod is doing, or what stops it"),
		text("Restarts", "How often containers of the pod were restarted, and when last"), age(),
		wide(text("IP", status["podIP"])), wide(text("Node", spec["nodeName"])),
		wide(text("Nominated Node", status["nominatedNodeName"])),
		wide(text("Readiness Gates", spec["readinessGates"])))
	cells := p.row
	p.row = func(obj runtime.Object, now time.Time) (metav1.TableRow, error) {
		row, err := cells(obj, now)
		if pod, ok := obj.(*corev1.Pod); ok {
			row.Conditions = completion(pod.Status.Phase)
		}
		return row, err
	}
	return p
}

// completion lets kubectl tell rows of finished pods from the others.
func completion(phase corev1.PodPhase) []metav1.TableRowCondition {
	message := ""
	switch phase {
	case corev1.PodSucceeded:
		message = "The pod has completed successfully."
	case corev1.PodFailed:
		message = "The pod failed."
	default:
		return nil
	}
	return []metav1.TableRowCondition{{
		Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(phase), Message: message,
	}}
}

func podCells(pod *corev1.Pod, now time.Time) []any {
	s := summarize(pod)
	restarts := fmt.Sprint(s.restarts)
	if s.restarts != 0 && !s.lastRestart.IsZero() {
		restarts += fmt.Sprintf(" (%s ago)", since(s.lastRestart, now))
	}
	ip := ""
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	return []any{
		pod.Name, fmt.Sprintf("%d/%d", s.ready, s.containers), s.status, restarts, ageOf(pod, now), orElse(ip, none),
		orElse(pod.Spec.NodeName, none), orElse(pod.Status.NominatedNodeName, none), readinessGates(pod),
	}
}

func readinessGates(pod *corev1.Pod) string {
	if len(pod.Spec.ReadinessGates) == 0 {
		return none
	}
	open := 0
	for _, gate := range pod.Spec.ReadinessGates {
		if conditionTrue(pod, gate.ConditionType) {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(pod.Spec.ReadinessGates))
}

func conditionTrue(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
