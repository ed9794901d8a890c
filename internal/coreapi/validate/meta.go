package validate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	Namespaced    = true
	ClusterScoped = false
)

// ObjectMeta checks metadata, including the names of finalizers.
func ObjectMeta(m *metav1.ObjectMeta, scope bool, name validation.ValidateNameFunc) field.ErrorList {
	errs := PlainMeta(m, scope, name)
	path := field.NewPath("metadata", "finalizers")
	return append(errs, EachValue(m.Finalizers, path, StandardFinalizer)...)
}

func PlainMeta(m *metav1.ObjectMeta, scope bool, name validation.ValidateNameFunc) field.ErrorList {
	return validation.ValidateObjectMeta(m, scope, name, field.NewPath("metadata"))
}

// StandardFinalizer refuses a finalizer without a domain except for the standard ones. Its owner would be unknown, and the
// object could never be deleted.
func StandardFinalizer(name string, path *field.Path) field.ErrorList {
	switch name {
	case string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents:
		return nil
	}
	if strings.Contains(name, "/") {
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")}
}

// CheckFinalizers adds the check of finalizers to updates, for kinds with update rules that do not check metadata.
func (r Rules) CheckFinalizers() Rules {
	update := r.Update
	r.Update = func(obj, old runtime.Object) field.ErrorList {
		errs := update(obj, old)
		m, err := meta.Accessor(obj)
		if err != nil {
			return append(errs, field.InternalError(field.NewPath("metadata"), err))
		}
		return append(errs, EachValue(m.GetFinalizers(), field.NewPath("metadata", "finalizers"), StandardFinalizer)...)
	}
	return r
}
