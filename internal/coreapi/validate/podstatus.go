package validate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidatePodStatus keeps a container that has stopped for good from running again: its exit is what controllers counted.
func ValidatePodStatus(p, old *corev1.Pod) field.ErrorList {
	status := field.NewPath("status")
	errs := podAnnotationsUpdate(p, old, field.NewPath("metadata", "annotations"))
	for i, c := range p.Status.Conditions {
		at := status.Child("conditions").Index(i)
		if c.ObservedGeneration < 0 {
			errs = append(errs, field.Invalid(at.Child("observedGeneration"), c.ObservedGeneration, "must be a non-negative integer"))
		}
		if c.Type != corev1.PodScheduled && c.Type != corev1.PodReady && c.Type != corev1.PodInitialized {
			errs = append(errs, qualified(string(c.Type), at.Child("Type"))...)
		}
	}
	errs = append(errs, nominated(p, old, status.Child("nominatedNodeName"))...)
	if p.Status.ObservedGeneration < 0 {
		errs = append(errs, field.Invalid(status.Child("observedGeneration"), p.Status.ObservedGeneration, "must be a non-negative integer"))
	}
	errs = append(errs, immutable(p.Status.QOSClass, old.Status.QOSClass, status.Child("qosClass"))...)
	errs = append(errs, stoppedContainers(p.Status.ContainerStatuses, old.Status.ContainerStatuses, &old.Spec, old.Spec.Containers,
		status.Child("containerStatuses"))...)
	errs = append(errs, stoppedContainers(p.Status.InitContainerStatuses, old.Status.InitContainerStatuses, &old.Spec, old.Spec.InitContainers,
		status.Child("initContainerStatuses"))...)
	errs = append(errs, stoppedContainers(p.Status.EphemeralContainerStatuses, old.Status.EphemeralContainerStatuses, nil, nil,
		status.Child("ephemeralContainerStatuses"))...)
	errs = append(errs, podDevices(p, status)...)
	errs = append(errs, podAddresses(p, old, status.Child("podIPs"))...)
	return append(errs, hostAddresses(p, old, status.Child("hostIPs"))...)
}

// nominated is a hint for whom the scheduler keeps a place; a pod that has one needs it no more.
func nominated(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	next := p.Status.NominatedNodeName
	if next == "" || next == old.Status.NominatedNodeName {
		return nil
	}
	errs := dnsSubdomain(next, path)
	if old.Spec.NodeName != "" {
		errs = append(errs, field.Forbidden(path, "may not be set on pods that are already bound to a node"))
	}
	return errs
}

// stoppedContainers compares statuses. spec is nil for containers that are never started again.
func stoppedContainers(next, old []corev1.ContainerStatus, spec *corev1.PodSpec, containers []corev1.Container, path *field.Path) field.ErrorList {
	if spec != nil && allMayRestart(spec) {
		return nil
	}
	var errs field.ErrorList
	for i, before := range old {
		ended := before.State.Terminated
		if ended == nil {
			continue
		}
		at := slices.IndexFunc(next, func(c corev1.ContainerStatus) bool { return c.Name == before.Name })
		if at < 0 || next[at].State.Terminated != nil || spec != nil && mayRestart(spec, containers, before.Name, ended.ExitCode) {
			continue
		}
		errs = append(errs, field.Forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
	}
	return errs
}

// allMayRestart reports whether some container's end can start the whole pod again.
func allMayRestart(s *corev1.PodSpec) bool {
	found := false
	eachContainer(s, nil, func(c *corev1.Container, _ *field.Path) {
		found = found || slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	})
	return found
}

// mayRestart asks the container's rules, then its policy, then the pod's.
func mayRestart(s *corev1.PodSpec, containers []corev1.Container, name string, code int32) bool {
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return false
	}
	for _, rule := range containers[i].RestartPolicyRules {
		if rule.ExitCodes == nil {
			continue
		}
		listed := slices.Contains(rule.ExitCodes.Values, code)
		if listed == (rule.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return true
		}
	}
	policy := s.RestartPolicy
	if own := containers[i].RestartPolicy; own != nil {
		policy = corev1.RestartPolicy(*own)
	}
	return policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && code != 0
}

func podAddresses(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	var next, before []string
	for _, ip := range p.Status.PodIPs {
		next = append(next, ip.IP)
	}
	for _, ip := range old.Status.PodIPs {
		before = append(before, ip.IP)
	}
	errs := addresses(next, before, p.Status.PodIPs, path)
	switch {
	case (p.Status.PodIP != "") != (len(next) > 0):
		errs = append(errs, field.Invalid(path, p.Status.PodIPs, "podIP and podIPs must either both be set or both be unset"))
	case len(next) > 0 && p.Status.PodIP != next[0]:
		errs = append(errs, field.Invalid(path.Index(0).Child("ip"), next[0], "must be equal to `podIP`"))
	}
	return errs
}

func hostAddresses(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	var next, before []string
	for _, ip := range p.Status.HostIPs {
		next = append(next, ip.IP)
	}
	for _, ip := range old.Status.HostIPs {
		before = append(before, ip.IP)
	}
	if len(next) == 0 {
		return nil
	}
	errs := addresses(next, before, p.Status.HostIPs, path)
	if p.Status.HostIP != next[0] {
		errs = append(errs, field.Invalid(path.Index(0).Child("ip"), next[0], "must be equal to `hostIP`"))
	}
	return errs
}

// addresses are one of each family at most.
func addresses(next, old []string, all any, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	sixes := 0
	for i, ip := range next {
		errs = append(errs, utilvalidation.IsValidIPForLegacyField(path.Index(i), ip, true, old)...)
		if strings.Contains(ip, ":") {
			sixes++
		}
	}
	if len(next) > 2 || len(next) == 2 && sixes != 1 {
		errs = append(errs, field.Invalid(path, all, "may specify no more than one IP for each IP family"))
	}
	return errs
}
