package defaults

import (
	corev1 "k8s.io/api/core/v1"
)

func DefaultPod(p *corev1.Pod) {
	spec := &p.Spec
	if grace := spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		soon := int64(1)
		spec.TerminationGracePeriodSeconds = &soon
	}
	point(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	podSpec(spec)
	podIPs(&p.Status)
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			if spec.HostNetwork {
				hostPorts(containers[i].Ports)
			}
			requestsFromLimits(&containers[i].Resources)
		}
	}
}

// podSpec is what pods and their templates have in common. A template is left without the rest, so that what a
// controller's owner reads back is what they wrote.
func podSpec(spec *corev1.PodSpec) {
	set(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	set(&spec.DNSPolicy, corev1.DNSClusterFirst)
	set(&spec.SchedulerName, corev1.DefaultSchedulerName)
	point(&spec.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	point(&spec.SecurityContext, corev1.PodSecurityContext{})
	accountNames(spec)
	for i := range spec.InitContainers {
		container(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		container(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		container((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	for i := range spec.Volumes {
		volume(&spec.Volumes[i])
	}
	milli(spec.Overhead)
	if spec.Resources != nil {
		milli(spec.Resources.Limits)
		milli(spec.Resources.Requests)
	}
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
