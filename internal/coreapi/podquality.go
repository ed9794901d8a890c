package coreapi

import (
	corev1 "k8s.io/api/core/v1"
	quantities "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	helper "k8s.io/component-helpers/resource"
)

// qualityOfService is how a kubelet ranks a pod when its node runs short: Guaranteed pods have all that they may use,
// BestEffort pods were promised nothing.
func qualityOfService(pod *corev1.Pod) corev1.PodQOSClass {
	asked, limited, every := false, corev1.ResourceList{}, true
	requested := corev1.ResourceList{}
	add := func(r *corev1.ResourceRequirements) {
		asked = sum(requested, r.Requests) || asked
		found := sum(limited, r.Limits)
		asked = found || asked
		every = every && positive(r.Limits, corev1.ResourceCPU) && positive(r.Limits, corev1.ResourceMemory)
	}
	if own := pod.Spec.Resources; own != nil && helper.IsPodLevelResourcesSet(pod) {
		add(own)
	} else {
		for i := range pod.Spec.Containers {
			add(&pod.Spec.Containers[i].Resources)
		}
		for i := range pod.Spec.InitContainers {
			add(&pod.Spec.InitContainers[i].Resources)
		}
	}
	switch {
	case !asked:
		return corev1.PodQOSBestEffort
	case !every || len(requested) != len(limited):
		return corev1.PodQOSBurstable
	}
	for name, quantity := range requested {
		if limit, there := limited[name]; !there || limit.Cmp(quantity) != 0 {
			return corev1.PodQOSBurstable
		}
	}
	return corev1.PodQOSGuaranteed
}

// sum adds what counts, CPU and memory, and reports whether there was any.
func sum(to, from corev1.ResourceList) bool {
	found := false
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if quantity, there := from[name]; there && quantity.Cmp(quantities.Quantity{}) > 0 {
			total := to[name]
			total.Add(quantity)
			to[name] = total
			found = true
		}
	}
	return found
}

func positive(list corev1.ResourceList, name corev1.ResourceName) bool {
	quantity := list[name]
	return quantity.Sign() > 0
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// setPodCondition replaces the condition of the same type. The time stays when the status does.
func setPodCondition(status *corev1.PodStatus, condition corev1.PodCondition) {
	condition.LastTransitionTime = metav1.Now()
	for i := range status.Conditions {
		if status.Conditions[i].Type != condition.Type {
			continue
		}
		if status.Conditions[i].Status == condition.Status {
			condition.LastTransitionTime = status.Conditions[i].LastTransitionTime
		}
		status.Conditions[i] = condition
		return
	}
	status.Conditions = append(status.Conditions, condition)
}
