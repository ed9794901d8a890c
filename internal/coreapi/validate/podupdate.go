package validate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// podUpdate lets only a few fields of a pod change: it has been placed and started by what it said.
func podUpdate(p, old *corev1.Pod) field.ErrorList {
	errs := objectMeta(&p.ObjectMeta, namespaced, func(string, bool) []string { return nil })
	spec := field.NewPath("spec")
	if len(p.Spec.Containers) != len(old.Spec.Containers) {
		return append(errs, field.Forbidden(spec.Child("containers"), "pod updates may not add or remove containers"))
	}
	if len(p.Spec.InitContainers) != len(old.Spec.InitContainers) {
		return append(errs, field.Forbidden(spec.Child("initContainers"), "pod updates may not add or remove containers"))
	}
	errs = append(errs, changedImages(p.Spec.Containers, old.Spec.Containers, spec.Child("containers"))...)
	errs = append(errs, changedImages(p.Spec.InitContainers, old.Spec.InitContainers, spec.Child("initContainers"))...)
	errs = append(errs, changedDeadline(p.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds,
		spec.Child("activeDeadlineSeconds"))...)
	errs = append(errs, addedTolerations(p.Spec.Tolerations, old.Spec.Tolerations, spec.Child("tolerations"))...)
	errs = append(errs, removedGates(p.Spec.SchedulingGates, old.Spec.SchedulingGates, spec.Child("schedulingGates"))...)
	if !apiequality.Semantic.DeepEqual(p.Spec, withAllowedChanges(&p.Spec, &old.Spec)) {
		errs = append(errs, field.Forbidden(spec, "pod updates may not change fields other than "+
			"`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"+
			"`spec.tolerations` (only additions to existing tolerations),"+
			"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"))
	}
	return errs
}

// withAllowedChanges is the old spec with every field that may change taken from the new one; if the two differ still,
// something else was changed.
func withAllowedChanges(next, old *corev1.PodSpec) corev1.PodSpec {
	allowed := *old.DeepCopy()
	for i := range allowed.Containers {
		allowed.Containers[i].Image = next.Containers[i].Image
	}
	for i := range allowed.InitContainers {
		allowed.InitContainers[i].Image = next.InitContainers[i].Image
	}
	allowed.ActiveDeadlineSeconds = next.ActiveDeadlineSeconds
	allowed.Tolerations = next.Tolerations
	allowed.SchedulingGates = next.SchedulingGates
	before, after := old.TerminationGracePeriodSeconds, next.TerminationGracePeriodSeconds
	if before != nil && *before < 0 && after != nil && *after == 1 {
		allowed.TerminationGracePeriodSeconds = after
	}
	return allowed
}

func changedImages(next, old []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range next {
		if next[i].Image != old[i].Image {
			errs = append(errs, image(next[i].Image, path.Index(i).Child("image"))...)
		}
	}
	return errs
}

// changedDeadline allows a deadline to come nearer, never to go away or further off.
func changedDeadline(next, old *int64, path *field.Path) field.ErrorList {
	switch {
	case next == nil && old != nil:
		return field.ErrorList{field.Invalid(path, next, "must not update from a positive integer to nil value")}
	case next != nil && *next < 0:
		return field.ErrorList{field.Invalid(path, *next, "must be greater than or equal to 0")}
	case next != nil && old != nil && *next > *old:
		return field.ErrorList{field.Invalid(path, *next, "must be less than or equal to previous value")}
	}
	return nil
}

// addedTolerations keeps every toleration that there was; only its tolerationSeconds may change.
func addedTolerations(next, old []corev1.Toleration, path *field.Path) field.ErrorList {
	for _, before := range old {
		before.TolerationSeconds = nil
		kept := slices.ContainsFunc(next, func(t corev1.Toleration) bool {
			t.TolerationSeconds = nil
			return t == before
		})
		if !kept {
			return field.ErrorList{field.Forbidden(path,
				"existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return tolerations(next, path)
}

func removedGates(next, old []corev1.PodSchedulingGate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, gate := range next {
		if !slices.Contains(old, gate) {
			errs = append(errs, field.Forbidden(path.Index(i), "only deletion is allowed, but found new scheduling gate '"+gate.Name+"'"))
		}
	}
	return errs
}

// podStatus keeps a container that has stopped for good from running again: its exit is what controllers counted.
func podStatus(p, old *corev1.Pod) field.ErrorList {
	status := field.NewPath("status")
	errs := stoppedContainers(p.Status.ContainerStatuses, old.Status.ContainerStatuses, old.Spec.RestartPolicy,
		status.Child("containerStatuses"))
	if next, before := p.Status.NominatedNodeName, old.Status.NominatedNodeName; next != before && next != "" {
		errs = append(errs, dnsSubdomain(next, status.Child("nominatedNodeName"))...)
	}
	seen := map[string]bool{}
	for i, ip := range p.Status.PodIPs {
		at := status.Child("podIPs").Index(i)
		if seen[ip.IP] {
			errs = append(errs, field.Duplicate(at, ip))
		}
		seen[ip.IP] = true
	}
	return errs
}

func stoppedContainers(next, old []corev1.ContainerStatus, policy corev1.RestartPolicy, path *field.Path) field.ErrorList {
	if policy == corev1.RestartPolicyAlways {
		return nil
	}
	var errs field.ErrorList
	for _, before := range old {
		ended := before.State.Terminated
		if ended == nil || ended.ExitCode != 0 && policy == corev1.RestartPolicyOnFailure {
			continue
		}
		for i, after := range next {
			if after.Name == before.Name && after.State.Terminated == nil {
				errs = append(errs, field.Forbidden(path.Index(i).Child("state"),
					"may not be transitioned to non-terminated state"))
			}
		}
	}
	return errs
}
