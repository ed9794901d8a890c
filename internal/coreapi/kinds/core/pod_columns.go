package core

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/coreapi/columns"
)

func podColumns() columns.Printer {
	spec, status := corev1.PodSpec{}.SwaggerDoc(), corev1.PodStatus{}.SwaggerDoc()
	p := columns.Show(podCells, columns.Name(),
		columns.Text("Ready", "How many containers of the pod are ready, of how many"),
		columns.Text("Status", "What the pod is doing, or what stops it"),
		columns.Text("Restarts", "How often containers of the pod were restarted, and when last"), columns.Age(),
		columns.Wide(columns.Text("IP", status["podIP"])), columns.Wide(columns.Text("Node", spec["nodeName"])),
		columns.Wide(columns.Text("Nominated Node", status["nominatedNodeName"])),
		columns.Wide(columns.Text("Readiness Gates", spec["readinessGates"])))
	cells := p.Row
	p.Row = func(obj runtime.Object, now time.Time) (metav1.TableRow, error) {
		row, err := cells(obj, now)
		if pod, ok := obj.(*corev1.Pod); ok {
			row.Conditions = completion(pod.Status.Phase)
		}
		return row, err
	}
	return p
}

// completion returns the conditions by which kubectl distinguishes the rows of finished pods.
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
		restarts += fmt.Sprintf(" (%s ago)", columns.Since(s.lastRestart, now))
	}
	ip := ""
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	return []any{
		pod.Name, fmt.Sprintf("%d/%d", s.ready, s.containers), s.status, restarts, columns.AgeOf(pod, now), columns.OrElse(ip, columns.None),
		columns.OrElse(pod.Spec.NodeName, columns.None), columns.OrElse(pod.Status.NominatedNodeName, columns.None), readinessGates(pod),
	}
}

func readinessGates(pod *corev1.Pod) string {
	if len(pod.Spec.ReadinessGates) == 0 {
		return columns.None
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

// nodeLost is the reason that the node controller sets for pods of an unreachable node.
const nodeLost = "NodeLost"

// summary is the state of a pod in one line. It must equal kube-apiserver's in every case, because scripts search for
// CrashLoopBackOff, Init:0/2 and Terminating.
type summary struct {
	status            string
	ready, containers int
	restarts          int
	lastRestart       time.Time
}

func summarize(pod *corev1.Pod) summary {
	s := summary{status: string(pod.Status.Phase), containers: len(pod.Spec.Containers)}
	if pod.Status.Reason != "" {
		s.status = pod.Status.Reason
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonSchedulingGated {
			s.status = corev1.PodReasonSchedulingGated
		}
	}
	sidecars := sidecarsOf(pod)
	s.containers += len(sidecars)

	initializing, sidecarRestarts := s.initContainers(pod, sidecars)
	if !initializing || conditionTrue(pod, corev1.PodInitialized) {
		// Restarts of init containers do not count once the pod runs, except for sidecars, which keep running.
		s.restarts, s.lastRestart = sidecarRestarts.restarts, sidecarRestarts.lastRestart
		s.mainContainers(pod)
	}
	return s.deleted(pod)
}

// sidecarsOf returns the names of the init containers that keep running next to the main containers.
func sidecarsOf(pod *corev1.Pod) map[string]bool {
	sidecars := map[string]bool{}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars[c.Name] = true
		}
	}
	return sidecars
}

// initContainers processes the init containers in order up to the first unfinished one, which determines the pod's status.
func (s *summary) initContainers(pod *corev1.Pod, sidecars map[string]bool) (initializing bool, ofSidecars summary) {
	for i, c := range pod.Status.InitContainerStatuses {
		s.countRestarts(c)
		if sidecars[c.Name] {
			ofSidecars.countRestarts(c)
		}
		if c.State.Terminated != nil && c.State.Terminated.ExitCode == 0 {
			continue
		}
		if sidecars[c.Name] && c.Started != nil && *c.Started {
			if c.Ready {
				s.ready++
			}
			continue
		}
		switch waiting := c.State.Waiting; {
		case c.State.Terminated != nil:
			s.status = "Init:" + ending(c.State.Terminated)
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing":
			s.status = "Init:" + waiting.Reason
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
		return true, ofSidecars
	}
	return false, ofSidecars
}

// mainContainers sets the status from the first container with a reason. It processes the containers from last to first, and
// each overrides the later ones.
func (s *summary) mainContainers(pod *corev1.Pod) {
	running := false
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := pod.Status.ContainerStatuses[i]
		s.countRestarts(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.status = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.status = ending(c.State.Terminated)
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.status == "Completed" && running {
		// One container has completed and another still runs, so the pod has not completed.
		s.status = "NotReady"
		if conditionTrue(pod, corev1.PodReady) {
			s.status = "Running"
		}
	}
}

func (s summary) deleted(pod *corev1.Pod) summary {
	finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case pod.DeletionTimestamp == nil:
	case pod.Status.Reason == nodeLost:
		s.status = "Unknown"
	case !finished:
		s.status = "Terminating"
	}
	return s
}

func (s *summary) countRestarts(c corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if last := c.LastTerminationState.Terminated; last != nil && last.FinishedAt.After(s.lastRestart) {
		s.lastRestart = last.FinishedAt.Time
	}
}

func ending(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}
