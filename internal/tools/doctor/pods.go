package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// maxPods bounds the number of pods that are read and described.
const maxPods = 3

// podState describes the state of a pod behind an endpoint, with commands for further inspection.
type podState struct {
	// says is a sentence like "pod orders-0 is Running on node n1, 7 restarts, container server waits:
	// CrashLoopBackOff".
	says string
	// ready is true if the kubelet reports the pod as ready.
	ready bool
	look  []string
}

// podsAt returns the pods behind the given addresses, or all pods of the Service if there are no addresses; at most
// maxPods.
func (x *exam) podsAt(ctx context.Context, places []string) []podState {
	hosts := make([]string, 0, len(places))
	for _, place := range places {
		if host, _, err := net.SplitHostPort(place); err == nil {
			hosts = append(hosts, host)
		}
	}
	var out []podState
	var seen []string
	for _, s := range x.slices {
		for _, e := range s.Endpoints {
			wanted := len(hosts) == 0 || slices.ContainsFunc(e.Addresses, func(a string) bool { return slices.Contains(hosts, a) })
			if !wanted || !isPod(&e) || slices.Contains(seen, e.TargetRef.Name) || len(seen) == maxPods {
				continue
			}
			seen = append(seen, e.TargetRef.Name)
			out = append(out, x.podState(ctx, &e))
		}
	}
	return out
}

func (x *exam) podState(ctx context.Context, e *discoveryv1.Endpoint) podState {
	ns, name := x.object.Spec.Service.Namespace, e.TargetRef.Name
	out := podState{look: []string{x.inNamespace("logs", name), x.inNamespace("describe", "pod", name)}}
	var pod corev1.Pod
	switch err := x.api.get(ctx, namespacePath(ns)+"/pods/"+url.PathEscape(name), &pod); {
	case apierrors.IsNotFound(err):
		out.says = "pod " + name + " no longer exists"
		out.look = []string{x.inNamespace("get", "pods", "-o", "wide")}
		return out
	case err != nil:
		out.says = "pod " + name
		if e.NodeName != nil {
			out.says += " on node " + *e.NodeName
		}
		out.says += " cannot be read: " + reading(err)
		return out
	}
	trouble := troubleOf(&pod)
	out.says, out.ready = describePod(&pod, trouble), isReady(&pod)
	logs := []string{"logs", name}
	if trouble != nil && len(pod.Spec.Containers) > 1 {
		logs = append(logs, "-c", trouble.Name)
	}
	if trouble != nil && trouble.State.Running == nil && trouble.RestartCount > 0 {
		logs = append(logs, "--previous")
	}
	out.look[0] = x.inNamespace(logs...)
	return out
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// troubleOf returns the first container that is not running or not ready, or nil.
func troubleOf(p *corev1.Pod) *corev1.ContainerStatus {
	for _, fits := range []func(corev1.ContainerStatus) bool{
		func(s corev1.ContainerStatus) bool { return s.State.Running == nil },
		func(s corev1.ContainerStatus) bool { return !s.Ready },
	} {
		if i := slices.IndexFunc(p.Status.ContainerStatuses, fits); i >= 0 {
			return &p.Status.ContainerStatuses[i]
		}
	}
	return nil
}

func describePod(p *corev1.Pod, trouble *corev1.ContainerStatus) string {
	phase := string(cmp.Or(p.Status.Phase, corev1.PodUnknown))
	if p.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "pod %s is %s", p.Name, phase)
	if isReady(p) {
		b.WriteString(" and ready")
	}
	if p.Spec.NodeName != "" {
		b.WriteString(" on node " + p.Spec.NodeName)
	} else {
		b.WriteString(" on no node yet")
	}
	restarts := 0
	for _, s := range p.Status.ContainerStatuses {
		restarts += int(s.RestartCount)
	}
	b.WriteString(", " + some(restarts, "restart"))
	if trouble == nil {
		return b.String()
	}
	switch state := trouble.State; {
	case state.Waiting != nil && state.Waiting.Reason != "":
		fmt.Fprintf(&b, ", container %s waits: %s", trouble.Name, state.Waiting.Reason)
	case state.Terminated != nil:
		fmt.Fprintf(&b, ", container %s ended: %s", trouble.Name, ending(state.Terminated))
	case state.Running != nil && !trouble.Ready:
		fmt.Fprintf(&b, ", container %s runs and is not ready", trouble.Name)
	}
	if last := trouble.LastTerminationState.Terminated; last != nil && trouble.State.Terminated == nil {
		fmt.Fprintf(&b, ", before that it ended: %s", ending(last))
	}
	return b.String()
}

func ending(t *corev1.ContainerStateTerminated) string {
	if t.Reason == "" {
		return fmt.Sprintf("exit status %d", t.ExitCode)
	}
	return fmt.Sprintf("%s, exit status %d", t.Reason, t.ExitCode)
}

// notListening returns the finding and the fix for addresses that refuse connections: the commands that inspect the
// pods come first, followed by the commands that change the registration.
func (x *exam) notListening(ctx context.Context, places []string) (string, []string) {
	where := strings.Join(places, ", ")
	pods := x.podsAt(ctx, places)
	if len(pods) == 0 {
		return where + " refuses connections: the extension server is not running there",
			append([]string{"# start the extension server at " + printable(where) + "; no pod is known that runs it", "# if it runs elsewhere:"}, x.redirectCommands()...)
	}
	var says, fix []string
	ready := false
	for _, p := range pods {
		says, fix, ready = append(says, p.says), append(fix, p.look...), ready || p.ready
	}
	fix = append(fix, "# if it runs and listens elsewhere:")
	found := where + " refuses connections: the extension server is not running: "
	if ready {
		found = where + " refuses connections: nothing listens on that port at the address of the pod: "
	}
	return found + strings.Join(says, "; "), append(fix, x.redirectCommands()...)
}
