package coreapi

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// privileged is what --allow-privileged=false refuses: privileged containers in a pod, and in what makes pods. As at
// kube-apiserver the old object does not count: one from before cannot be updated.
func (s strategy) privileged(obj runtime.Object) field.ErrorList {
	spec := podSpecOf(obj)
	if spec == nil || !s.denyPrivileged {
		return nil
	}
	var errs field.ErrorList
	check := func(c *corev1.SecurityContext, at *field.Path) {
		if c != nil && c.Privileged != nil && *c.Privileged {
			errs = append(errs, field.Forbidden(at.Child("securityContext", "privileged"), "disallowed by cluster policy"))
		}
	}
	at := podSpecPath(obj)
	for i := range spec.Containers {
		check(spec.Containers[i].SecurityContext, at.Child("containers").Index(i))
	}
	for i := range spec.InitContainers {
		check(spec.InitContainers[i].SecurityContext, at.Child("initContainers").Index(i))
	}
	for i := range spec.EphemeralContainers {
		check(spec.EphemeralContainers[i].SecurityContext, at.Child("ephemeralContainers").Index(i))
	}
	return errs
}

// podSpecPath is where podSpecOf finds the spec.
func podSpecPath(obj runtime.Object) *field.Path {
	switch obj.(type) {
	case *corev1.Pod:
		return field.NewPath("spec")
	case *corev1.PodTemplate:
		return field.NewPath("template", "spec")
	case *batchv1.CronJob:
		return field.NewPath("spec", "jobTemplate", "spec", "template", "spec")
	}
	return field.NewPath("spec", "template", "spec")
}
