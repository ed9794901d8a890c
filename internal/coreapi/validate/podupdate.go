package validate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// EphemeralContainers returns what is wrong with containers that were added to a running pod to look into it.
func EphemeralContainers(p, old *corev1.Pod) field.ErrorList {
	if _, static := old.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	errs := append(MetaUpdate(p, old), WholePod(p)...)
	errs = append(errs, PodAnnotationsUpdate(p, old, field.NewPath("metadata", "annotations"))...)
	path := field.NewPath("spec", "ephemeralContainers")
	for _, before := range old.Spec.EphemeralContainers {
		i := slices.IndexFunc(p.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == before.Name })
		switch {
		case i < 0:
			errs = append(errs, field.Forbidden(path, "existing ephemeral containers \""+before.Name+"\" may not be removed\n"))
		case !apiequality.Semantic.DeepEqual(before, p.Spec.EphemeralContainers[i]):
			errs = append(errs, field.Forbidden(path, "existing ephemeral containers \""+before.Name+"\" may not be changed\n"+
				diff.Diff(before, p.Spec.EphemeralContainers[i])))
		}
	}
	return errs
}

// Binding returns what is wrong with the wish to run a pod somewhere.
func Binding(b *corev1.Binding) field.ErrorList {
	var errs field.ErrorList
	target := field.NewPath("target")
	if b.Target.Kind != "" && b.Target.Kind != "Node" {
		errs = append(errs, field.NotSupported(target.Child("kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	switch {
	case b.Target.Name == "":
		errs = append(errs, field.Required(target.Child("name"), ""))
	case len(errs) == 0:
		errs = append(errs, DnsSubdomain(b.Target.Name, target.Child("name"))...)
	}
	return errs
}
