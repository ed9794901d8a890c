package validate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func LimitedResource(kind corev1.LimitType, name corev1.ResourceName, path *field.Path) field.ErrorList {
	if kind != corev1.LimitTypePod && kind != corev1.LimitTypeContainer {
		return KnownResource(name, path)
	}
	errs := KnownResource(name, path)
	switch {
	case strings.Contains(string(name), "/"):
		if !Native(name) && strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) {
			return append(errs, field.Invalid(path, name, "doesn't follow extended resource name standard"))
		}
	case name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage &&
		!strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
	}
	return errs
}
