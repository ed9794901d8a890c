// Package validate refuses what kube-apiserver would refuse of the local groups, at the same field and in the same words:
// operators search for those words, and controllers are written against them.
//
// The rules are kube-apiserver's where an object could mislead the front door, its users, or the controllers, schedulers
// and kubelets that read it. They are not all of them: of storage whose drivers are gone, only what names the volume is
// asked for.
package validate

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Create returns what is wrong with a new object. A kind that this package has no rules for is refused: it would be
// stored unread.
func Create(_ context.Context, obj runtime.Object) field.ErrorList {
	rules, known := rulesOf(obj)
	if !known {
		return noRules(obj)
	}
	return rules.create(obj)
}

// Update returns what is wrong with an object that is to replace old.
func Update(_ context.Context, obj, old runtime.Object) field.ErrorList {
	rules, known := rulesOf(obj)
	if !known {
		return noRules(obj)
	}
	errs := append(metaUpdate(obj, old), rules.update(obj, old)...)
	return append(errs, finalizersOnUpdate(obj)...)
}

// UpdateStatus returns what is wrong with an object whose status is to replace that of old. The rest of the object is
// the strategy's to restore.
func UpdateStatus(_ context.Context, obj, old runtime.Object) field.ErrorList {
	rules, known := rulesOf(obj)
	if !known {
		return noRules(obj)
	}
	return append(metaUpdate(obj, old), rules.status(obj, old)...)
}

func noRules(obj runtime.Object) field.ErrorList {
	return field.ErrorList{field.InternalError(nil, fmt.Errorf("no validation rules for %T", obj))}
}

// metaUpdate keeps what nobody may change after creation: name, namespace, uid, creation and deletion times, and it
// asks for a resourceVersion.
func metaUpdate(obj, old runtime.Object) field.ErrorList {
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
