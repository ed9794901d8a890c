package coreapi

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/coreapi/defaults"
)

// preparePod gives a pod the status of one that nobody has looked at yet, and its selectors of other pods the values that
// are its own.
func preparePod(obj runtime.Object) {
	pod := obj.(*corev1.Pod)
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	defaults.PodResources(pod)
	if len(pod.Spec.SchedulingGates) > 0 {
		setPodCondition(&pod.Status, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates",
		})
	}
	if a := pod.Spec.Affinity; a != nil {
		if a.PodAffinity != nil {
			selectByOwnLabels(pod, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if a.PodAntiAffinity != nil {
			selectByOwnLabels(pod, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		addOwnLabels(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn, pod.Labels)
	}
	pod.Status.QOSClass = qualityOfService(pod)
}

// selectByOwnLabels is how pods of one revision keep apart from each other and not from those of another (KEP-3633).
func selectByOwnLabels(pod *corev1.Pod, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
	add := func(t *corev1.PodAffinityTerm) {
		addOwnLabels(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn, pod.Labels)
		addOwnLabels(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn, pod.Labels)
	}
	for i := range required {
		add(&required[i])
	}
	for i := range preferred {
		add(&preferred[i].PodAffinityTerm)
	}
}

func addOwnLabels(s *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator, labels map[string]string) {
	if s == nil {
		return // selects nothing, and shall go on to
	}
	for _, key := range keys {
		if value, there := labels[key]; there {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
		}
	}
}

// keepPodResources is for clients from before pods had resources of their own, which leave the field out.
func keepPodResources(obj, old runtime.Object) {
	pod, before := obj.(*corev1.Pod), old.(*corev1.Pod)
	if pod.Spec.Resources == nil && before.Spec.Resources != nil {
		pod.Spec.Resources = before.Spec.Resources.DeepCopy()
	}
}

// keepOfPodStatus keeps what kubelets of other releases drop from a status that they write back: the class, what was
// allocated, and which generation a condition is about. Owners stay too: old kubelets wrote them wrong, and the garbage
// collector believed them.
func keepOfPodStatus(obj, old runtime.Object) {
	pod, before := obj.(*corev1.Pod), old.(*corev1.Pod)
	pod.OwnerReferences = before.OwnerReferences
	next, was := &pod.Status, &before.Status
	if next.QOSClass == "" {
		next.QOSClass = was.QOSClass
	}
	if next.ResourceClaimStatuses == nil {
		next.ResourceClaimStatuses = was.ResourceClaimStatuses
	}
	if next.ExtendedResourceClaimStatus == nil {
		next.ExtendedResourceClaimStatus = was.ExtendedResourceClaimStatus
	}
	if next.ObservedGeneration == 0 {
		next.ObservedGeneration = was.ObservedGeneration
	}
	if was.NodeAllocatableResourceClaimStatuses == nil { // DRANodeAllocatableResources is alpha, and off
		next.NodeAllocatableResourceClaimStatuses = nil
	}
	if was.VolumeHealth == nil { // and so is CSIVolumeHealth
		next.VolumeHealth = nil
	}
	earlier := slices.Clone(was.Conditions) // of one type there may be several
	for i := range next.Conditions {
		at := slices.IndexFunc(earlier, func(c corev1.PodCondition) bool { return c.Type == next.Conditions[i].Type })
		if at < 0 {
			continue
		}
		if next.Conditions[i].ObservedGeneration == 0 {
			next.Conditions[i].ObservedGeneration = earlier[at].ObservedGeneration
		}
		earlier = slices.Delete(earlier, at, at+1)
	}
}
