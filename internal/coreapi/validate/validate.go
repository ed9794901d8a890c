// Package validate refuses what kube-apiserver would refuse of the local groups, at the same field and in the same words:
// operators search for those words, and controllers are written against them.
//
// The rules are kube-apiserver's where an object could mislead the front door, its users, or the controllers, schedulers
// and kubelets that read it. They are not all of them: of storage whose drivers are gone, only what names the volume is
// asked for.
package validate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MetaUpdate keeps what nobody may change after creation: name, namespace, uid, creation and deletion times, and it
// asks for a resourceVersion.
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

// Rules is what one kind demands at each kind of write.
type Rules struct {
	Create func(obj runtime.Object) field.ErrorList
	// Update is about an object that is to replace old, Status about one whose status is to replace that of old: the rest
	// of it is the strategy's to restore.
	Update, Status func(obj, old runtime.Object) field.ErrorList
}

// SameOnUpdate is for kinds whose updates are checked as if they were new.
func SameOnUpdate[T runtime.Object](create func(T) field.ErrorList) Rules {
	return OnUpdate(create, func(obj, _ T) field.ErrorList { return create(obj) })
}

// OnUpdate is for kinds with rules of their own for updates.
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

// typed guards against an old object of another kind; the new one is of the kind that the storage is for.
func typed[T runtime.Object](check func(obj, old T) field.ErrorList) func(obj, old runtime.Object) field.ErrorList {
	return func(obj, old runtime.Object) field.ErrorList {
		before, ok := old.(T)
		if !ok {
			return field.ErrorList{field.InternalError(nil, fmt.Errorf("%T cannot replace %T", obj, old))}
		}
		return check(obj.(T), before)
	}
}

// Warn makes a function over any object from one over the kind's Go type.
func Warn[T runtime.Object](warnings func(T) []string) func(runtime.Object) []string {
	return func(obj runtime.Object) []string { return warnings(obj.(T)) }
}
