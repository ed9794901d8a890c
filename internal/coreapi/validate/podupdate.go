package validate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const changeable = "pod updates may not change fields other than " +
	"`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`," +
	"`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

// ValidatePodUpdate lets only a few fields of a pod change: it has been placed and started by what it said.
func ValidatePodUpdate(p, old *corev1.Pod) field.ErrorList {
	errs := wholePod(p)
	errs = append(errs, podAnnotationsUpdate(p, old, field.NewPath("metadata", "annotations"))...)
	spec := field.NewPath("spec")
	if len(p.Spec.Containers) != len(old.Spec.Containers) {
		return append(errs, field.Forbidden(spec.Child("containers"), "pod updates may not add or remove containers"))
	}
	if len(p.Spec.InitContainers) != len(old.Spec.InitContainers) {
		return append(errs, field.Forbidden(spec.Child("initContainers"), "pod updates may not add or remove containers"))
	}
	errs = append(errs, changedDeadline(p.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds,
		spec.Child("activeDeadlineSeconds"))...)
	errs = append(errs, addedTolerations(p.Spec.Tolerations, old.Spec.Tolerations, spec.Child("tolerations"))...)
	errs = append(errs, removedGates(p.Spec.SchedulingGates, old.Spec.SchedulingGates, spec.Child("schedulingGates"))...)
	if apiequality.Semantic.DeepEqual(p.Spec, old.Spec) {
		return errs
	}
	left := withoutAllowedChanges(&p.Spec, &old.Spec)
	if len(old.Spec.SchedulingGates) > 0 {
		errs = append(errs, narrowed(left, &old.Spec, spec)...)
	}
	if !apiequality.Semantic.DeepEqual(*left, old.Spec) {
		errs = append(errs, field.Forbidden(spec, changeable+"\n"+diff.Diff(old.Spec, *left)))
	}
	return errs
}

// withoutAllowedChanges is the new spec with every field that may change taken from the old one; if the two differ
// still, something else was changed.
func withoutAllowedChanges(next, old *corev1.PodSpec) *corev1.PodSpec {
	left := next.DeepCopy()
	for i := range left.Containers {
		left.Containers[i].Image = old.Containers[i].Image
	}
	for i := range left.InitContainers {
		left.InitContainers[i].Image = old.InitContainers[i].Image
	}
	left.ActiveDeadlineSeconds = old.ActiveDeadlineSeconds
	left.Tolerations = old.Tolerations
	left.SchedulingGates = old.SchedulingGates
	before, after := old.TerminationGracePeriodSeconds, next.TerminationGracePeriodSeconds
	if before != nil && *before < 0 && after != nil && *after == 1 {
		left.TerminationGracePeriodSeconds = before
	}
	return left
}

// narrowed lets whoever holds the gates of a pod say more about where it may run, never less. What was allowed is taken
// back from left.
func narrowed(left, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for key, value := range old.NodeSelector {
		if next, kept := left.NodeSelector[key]; !kept || next != value {
			errs = append(errs, field.Invalid(path.Child("nodeSelector"), left.NodeSelector,
				"only additions to spec.nodeSelector are allowed (no mutations or deletions)"))
			break
		}
	}
	left.NodeSelector = old.NodeSelector
	next, before := nodeAffinity(left), nodeAffinity(old)
	if apiequality.Semantic.DeepEqual(next, before) {
		return errs
	}
	errs = append(errs, narrowedAffinity(next, before, path.Child("affinity", "nodeAffinity"))...)
	switch {
	case left.Affinity == nil:
		left.Affinity = &corev1.Affinity{NodeAffinity: before}
	case old.Affinity == nil && left.Affinity.PodAffinity == nil && left.Affinity.PodAntiAffinity == nil:
		left.Affinity = nil
	default:
		left.Affinity.NodeAffinity = before
	}
	return errs
}

func nodeAffinity(s *corev1.PodSpec) *corev1.NodeAffinity {
	if s.Affinity == nil {
		return nil
	}
	return s.Affinity.NodeAffinity
}

func narrowedAffinity(next, old *corev1.NodeAffinity, path *field.Path) field.ErrorList {
	before := requiredTerms(old)
	if len(before) == 0 {
		return nil
	}
	after, at := requiredTerms(next), path.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	if len(after) != len(before) {
		return field.ErrorList{field.Invalid(at, after, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")}
	}
	var errs field.ErrorList
	for i := range before {
		if !onlyAdds(&after[i], &before[i]) {
			errs = append(errs, field.Invalid(at.Index(i), after[i], "only additions are allowed (no mutations or deletions)"))
		}
	}
	return errs
}

func requiredTerms(a *corev1.NodeAffinity) []corev1.NodeSelectorTerm {
	if a == nil || a.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// onlyAdds reports whether a term selects a part of what it did. One that is empty selects nothing, and must stay so.
func onlyAdds(next, old *corev1.NodeSelectorTerm) bool {
	if len(old.MatchExpressions) == 0 && len(old.MatchFields) == 0 {
		return len(next.MatchExpressions) == 0 && len(next.MatchFields) == 0
	}
	prefix := func(next, old []corev1.NodeSelectorRequirement) bool {
		return len(next) >= len(old) && apiequality.Semantic.DeepEqual(next[:len(old)], old)
	}
	return prefix(next.MatchExpressions, old.MatchExpressions) && prefix(next.MatchFields, old.MatchFields)
}

// changedDeadline allows a deadline to come nearer, never to go away or further off.
func changedDeadline(next, old *int64, path *field.Path) field.ErrorList {
	switch {
	case next == nil && old != nil:
		return field.ErrorList{field.Invalid(path, next, "must not update from a positive integer to nil value")}
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
	return nil
}

func removedGates(next, old []corev1.PodSchedulingGate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, gate := range next {
		if !slices.Contains(old, gate) {
			errs = append(errs, field.Forbidden(path.Index(i).Child("name"), "only deletion is allowed, but found new scheduling gate '"+gate.Name+"'"))
		}
	}
	return errs
}

// EphemeralContainers returns what is wrong with containers that were added to a running pod to look into it.
func EphemeralContainers(p, old *corev1.Pod) field.ErrorList {
	if _, static := old.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	errs := append(metaUpdate(p, old), wholePod(p)...)
	errs = append(errs, podAnnotationsUpdate(p, old, field.NewPath("metadata", "annotations"))...)
	path := field.NewPath("spec", "ephemeralContainers")
	for _, before := range old.Spec.EphemeralContainers {
		i := slices.IndexFunc(p.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == before.Name })
		switch {
		case i < 0:
			errs = append(errs, field.Forbidden(path, "existing ephemeral containers \""+before.Name+"\" may not be removed\n"))
		case !apiequality.Semantic.DeepEqual(before, p.Spec.EphemeralContainers[i]):
			errs = append(errs, field.Forbidden(path, "existing ephemeral containers \""+before.Name+"\" may not be changed\n"+
				diff.Diff(before, p.Spec.EphemeralContainers[i])))
		}
	}
	return errs
}

// Binding returns what is wrong with the wish to run a pod somewhere.
func Binding(b *corev1.Binding) field.ErrorList {
	var errs field.ErrorList
	target := field.NewPath("target")
	if b.Target.Kind != "" && b.Target.Kind != "Node" {
		errs = append(errs, field.NotSupported(target.Child("kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	switch {
	case b.Target.Name == "":
		errs = append(errs, field.Required(target.Child("name"), ""))
	case len(errs) == 0:
		errs = append(errs, dnsSubdomain(b.Target.Name, target.Child("name"))...)
	}
	return errs
}
