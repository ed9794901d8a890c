package defaults

import (
	corev1 "k8s.io/api/core/v1"
)

// PodSpec is what pods and their templates have in common. A template is left without the rest, so that what a
// controller's owner reads back is what they wrote.
func PodSpec(spec *corev1.PodSpec) {
	Set(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	Set(&spec.DNSPolicy, corev1.DNSClusterFirst)
	Set(&spec.SchedulerName, corev1.DefaultSchedulerName)
	Point(&spec.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	Point(&spec.SecurityContext, corev1.PodSecurityContext{})
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
	Milli(spec.Overhead)
	if spec.Resources != nil {
		Milli(spec.Resources.Limits)
		Milli(spec.Resources.Requests)
	}
}

// accountNames keeps the old serviceAccount field equal to the new one, which wins; clients read either.
func accountNames(spec *corev1.PodSpec) {
	Set(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
}
