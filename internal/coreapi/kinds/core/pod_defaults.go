package core

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"

	"portico.dev/internal/coreapi/defaults"
)

// defaultHostPorts sets the host ports of containers in the host network to the container ports.
func defaultHostPorts(ports []corev1.ContainerPort) {
	for i := range ports {
		defaults.Set(&ports[i].HostPort, ports[i].ContainerPort)
	}
}

func defaultPod(p *corev1.Pod) {
	spec := &p.Spec
	if grace := spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		soon := int64(1)
		spec.TerminationGracePeriodSeconds = &soon
	}
	defaults.Point(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	defaults.PodSpec(spec)
	PodIPs(&p.Status)
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			if spec.HostNetwork {
				defaultHostPorts(containers[i].Ports)
			}
			requestsFromLimits(&containers[i].Resources)
		}
	}
}

// PodIPs synchronizes podIP and podIPs: writers may set only the old field, and readers may read only the new one.
func PodIPs(status *corev1.PodStatus) {
	switch {
	case len(status.PodIPs) == 0 && status.PodIP != "":
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	case len(status.PodIPs) > 0 && status.PodIP == "":
		status.PodIP = status.PodIPs[0].IP
	}
}

// requestsFromLimits sets missing requests of a container to its limits.
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

// PodResources sets the defaults of pod-level resources (KEP-2837) if the pod has any: requests from the containers' requests,
// or else from the pod's limits, and limits if every container has one. It does not run during decoding, because values that
// admission adds to containers count.
func PodResources(p *corev1.Pod) {
	own := p.Spec.Resources
	if own == nil || len(own.Limits) == 0 && len(own.Requests) == 0 {
		return
	}
	limits := helper.AggregateContainerLimits(p, helper.PodResourcesOptions{})
	for name, quantity := range limits {
		if _, asked := own.Requests[name]; !asked && pages(name) && helper.IsSupportedPodLevelResource(name) {
			supply(&own.Limits, name, quantity)
		}
	}
	for name, quantity := range helper.AggregateContainerRequests(p, helper.PodResourcesOptions{}) {
		if !pages(name) && helper.IsSupportedPodLevelResource(name) {
			supply(&own.Requests, name, quantity)
		}
	}
	for name, quantity := range own.Limits {
		if helper.IsSupportedPodLevelResource(name) {
			supply(&own.Requests, name, quantity)
		}
	}
	for name, asked := range own.Requests {
		if limit, sum := limits[name]; sum && limitedEverywhere(&p.Spec, name) && helper.IsSupportedPodLevelResource(name) {
			if asked.Cmp(limit) > 0 {
				limit = asked
			}
			supply(&own.Limits, name, limit)
		}
	}
}

// pages reports whether name is a huge page resource, which cannot be overcommitted.
func pages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

func supply(list *corev1.ResourceList, name corev1.ResourceName, quantity resource.Quantity) {
	if _, said := (*list)[name]; said {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = quantity.DeepCopy()
}

func limitedEverywhere(spec *corev1.PodSpec, name corev1.ResourceName) bool {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			if _, said := containers[i].Resources.Limits[name]; !said {
				return false
			}
		}
	}
	return true
}
