// Package validate refuses what kube-apiserver would refuse of the local groups, at the same field and in the same words:
// operators search for those words, and controllers are written against them.
//
// The rules are kube-apiserver's where an object could mislead the front door, its users, or the controllers, schedulers
// and kubelets that read it. They are not all of them: of storage whose drivers are gone, only what names the volume is
// asked for.
package validate

import (
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
