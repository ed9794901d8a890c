package validate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Finalize returns what is wrong with a namespace that is written through its finalize subresource.
func Finalize(n, old *corev1.Namespace) field.ErrorList {
	return append(MetaUpdate(n, old), NamespaceFinalizers(n, (*field.Path).Index)...)
}

// NamespaceFinalizers blames the list where a namespace is created and the entry where it is finalized, as kube-apiserver
// does.
func NamespaceFinalizers(n *corev1.Namespace, blamed func(*field.Path, int) *field.Path) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "finalizers")
	for i, finalizer := range n.Spec.Finalizers {
		errs = append(errs, validation.ValidateFinalizerName(string(finalizer), blamed(path, i))...)
		errs = append(errs, standardFinalizer(string(finalizer), blamed(path, i))...)
	}
	return errs
}
