package validate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func ValidateNamespace(n *corev1.Namespace) field.ErrorList {
	errs := objectMeta(&n.ObjectMeta, clusterScoped, validation.ValidateNamespaceName)
	return append(errs, namespaceFinalizers(n, func(path *field.Path, _ int) *field.Path { return path })...)
}

// ValidateNamespaceUpdate has no rules beyond those of metadata: spec.finalizers and status are restored by the strategy, and
// change only through the finalize and status subresources.
func ValidateNamespaceUpdate(_, _ *corev1.Namespace) field.ErrorList { return nil }

// Finalize returns what is wrong with a namespace that is written through its finalize subresource.
func Finalize(n, old *corev1.Namespace) field.ErrorList {
	return append(metaUpdate(n, old), namespaceFinalizers(n, (*field.Path).Index)...)
}

// namespaceFinalizers blames the list where a namespace is created and the entry where it is finalized, as kube-apiserver
// does.
func namespaceFinalizers(n *corev1.Namespace, blamed func(*field.Path, int) *field.Path) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "finalizers")
	for i, finalizer := range n.Spec.Finalizers {
		errs = append(errs, validation.ValidateFinalizerName(string(finalizer), blamed(path, i))...)
		errs = append(errs, standardFinalizer(string(finalizer), blamed(path, i))...)
	}
	return errs
}

// ValidateNamespaceStatus ties the phase to the deletion timestamp; a namespace cannot be brought back by writing Active.
func ValidateNamespaceStatus(n, _ *corev1.Namespace) field.ErrorList {
	path := field.NewPath("status", "Phase")
	if n.DeletionTimestamp.IsZero() {
		if n.Status.Phase != corev1.NamespaceActive {
			return field.ErrorList{field.Invalid(path, n.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")}
		}
		return nil
	}
	if n.Status.Phase != corev1.NamespaceTerminating {
		return field.ErrorList{field.Invalid(path, n.Status.Phase,
			"may only be 'Terminating' if `deletionTimestamp` is not empty")}
	}
	return nil
}
