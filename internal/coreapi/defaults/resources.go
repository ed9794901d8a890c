package defaults

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"
)

// requestsFromLimits makes a container request what it is limited to, where it says only the limit.
func requestsFromLimits(r *corev1.ResourceRequirements) {
	if r.Limits != nil && r.Requests == nil {
		r.Requests = make(corev1.ResourceList, len(r.Limits))
	}
	for name, quantity := range r.Limits {
		if _, said := r.Requests[name]; !said {
			r.Requests[name] = quantity.DeepCopy()
		}
	}
}

// podRequests fills in the requests of a pod that sets limits for itself as a whole (KEP-2837): from its containers'
// where they have any, otherwise from its own limits. It runs after the containers have got theirs.
func podRequests(p *corev1.Pod) {
	own := p.Spec.Resources
	if own == nil || len(own.Limits) == 0 {
		return
	}
	milli(own.Limits)
	milli(own.Requests)
	requests := own.Requests
	if requests == nil {
		requests = corev1.ResourceList{}
	}
	for name, quantity := range helper.AggregateContainerRequests(p, helper.PodResourcesOptions{}) {
		overcommits := !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if _, said := requests[name]; !said && overcommits && helper.IsSupportedPodLevelResource(name) {
			requests[name] = quantity.DeepCopy()
		}
	}
	for name, quantity := range own.Limits {
		if _, said := requests[name]; !said && helper.IsSupportedPodLevelResource(name) {
			requests[name] = quantity.DeepCopy()
		}
	}
	if len(requests) > 0 {
		own.Requests = requests
	}
}

// milli rounds quantities up to thousandths, the finest that kube-apiserver keeps.
func milli(list corev1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}
