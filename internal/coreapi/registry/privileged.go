package registry

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

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
