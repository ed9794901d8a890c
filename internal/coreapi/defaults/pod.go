package defaults

import (
	corev1 "k8s.io/api/core/v1"
)

func pod(p *corev1.Pod) {
	spec := &p.Spec
	set(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	set(&spec.DNSPolicy, corev1.DNSClusterFirst)
	set(&spec.SchedulerName, corev1.DefaultSchedulerName)
	point(&spec.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	point(&spec.SecurityContext, corev1.PodSecurityContext{})
	point(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	accountNames(spec)
	podIPs(&p.Status)
	for i := range spec.InitContainers {
		container(&spec.InitContainers[i], spec.HostNetwork)
		requestsFromLimits(&spec.InitContainers[i].Resources)
	}
	for i := range spec.Containers {
		container(&spec.Containers[i], spec.HostNetwork)
		requestsFromLimits(&spec.Containers[i].Resources)
	}
	for i := range spec.EphemeralContainers {
		container((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon), false)
	}
	for i := range spec.Volumes {
		volume(&spec.Volumes[i])
	}
	milli(spec.Overhead)
	podRequests(p)
}

// accountNames keeps the old serviceAccount field equal to the new one, which wins; clients read either.
func accountNames(spec *corev1.PodSpec) {
	set(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
}

// podIPs keeps podIP and podIPs in step: writers may know only the old field, readers only the new.
func podIPs(status *corev1.PodStatus) {
	switch {
	case len(status.PodIPs) == 0 && status.PodIP != "":
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	case len(status.PodIPs) > 0 && status.PodIP == "":
		status.PodIP = status.PodIPs[0].IP
	}
}
