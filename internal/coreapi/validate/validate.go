// Package validate contains validation rules for the local groups. It reports errors at the same fields and with the same
// messages as kube-apiserver, because operators search for the messages and controllers depend on them.
//
// The package has kube-apiserver's rules for all objects that could mislead this server, its users, or the controllers,
// schedulers and kubelets that read them. It does not have all rules: for storage without a driver in Kubernetes, only the
// fields that identify the volume are required.
package validate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MetaUpdate checks the metadata fields that are immutable after creation (name, namespace, uid, creation and deletion times),
// and requires a resourceVersion.
func MetaUpdate(obj, old runtime.Object) field.ErrorList {
	path := field.NewPath("metadata")
	next, err := meta.Accessor(obj)
	if err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	before, err := meta.Accessor(old)
	if err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	return validation.ValidateObjectMetaAccessorUpdate(next, before, path)
}

// Rules contains the checks of one kind for each type of write.
type Rules struct {
	Create func(obj runtime.Object) field.ErrorList
	// Update checks an object that replaces old. Status checks an object that replaces the status of old; the strategy has
	// restored the other fields.
	Update, Status func(obj, old runtime.Object) field.ErrorList
}

// SameOnUpdate is for kinds that check updates like creates.
func SameOnUpdate[T runtime.Object](create func(T) field.ErrorList) Rules {
	return OnUpdate(create, func(obj, _ T) field.ErrorList { return create(obj) })
}

// OnUpdate is for kinds with separate rules for updates.
func OnUpdate[T runtime.Object](create func(T) field.ErrorList, update func(obj, old T) field.ErrorList) Rules {
	return WithStatus(create, update, func(_, _ T) field.ErrorList { return nil })
}

func WithStatus[T runtime.Object](create func(T) field.ErrorList, update, status func(obj, old T) field.ErrorList) Rules {
	checkUpdate, checkStatus := typed(update), typed(status)
	return Rules{
		Create: func(obj runtime.Object) field.ErrorList { return create(obj.(T)) },
		Update: func(obj, old runtime.Object) field.ErrorList {
			return append(MetaUpdate(obj, old), checkUpdate(obj, old)...)
		},
		Status: func(obj, old runtime.Object) field.ErrorList {
			return append(MetaUpdate(obj, old), checkStatus(obj, old)...)
		},
	}
}

// typed returns an error if old is of another kind. obj is of the kind of the storage.
func typed[T runtime.Object](check func(obj, old T) field.ErrorList) func(obj, old runtime.Object) field.ErrorList {
	return func(obj, old runtime.Object) field.ErrorList {
		before, ok := old.(T)
		if !ok {
			return field.ErrorList{field.InternalError(nil, fmt.Errorf("%T cannot replace %T", obj, old))}
		}
		return check(obj.(T), before)
	}
}

// Warn converts a function for the kind's Go type to a function for any object.
func Warn[T runtime.Object](warnings func(T) []string) func(runtime.Object) []string {
	return func(obj runtime.Object) []string { return warnings(obj.(T)) }
}
