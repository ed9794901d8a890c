package coreapi

import (
	"context"
	"errors"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/coreapi/validate"
)

// priorityClasses keeps the system's own: pods that name a class that is gone are refused, and these are the pods that
// a cluster cannot do without.
type priorityClasses struct{ *stored }

func (p priorityClasses) Delete(ctx context.Context, name string, check rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if err := keepSystemClass(name); err != nil {
		return nil, false, err
	}
	return p.stored.Delete(ctx, name, check, options)
}

// DeleteCollection stops at a class of the system, where kube-apiserver's does not look.
func (p priorityClasses) DeleteCollection(ctx context.Context, check rest.ValidateObjectFunc, options *metav1.DeleteOptions,
	list *metainternalversion.ListOptions,
) (runtime.Object, error) {
	return p.stored.DeleteCollection(ctx, func(ctx context.Context, obj runtime.Object) error {
		if err := keepSystemClass(obj.(*schedulingv1.PriorityClass).Name); err != nil {
			return err
		}
		if check == nil {
			return nil
		}
		return check(ctx, obj)
	}, options, list)
}

func keepSystemClass(name string) error {
	if _, system := validate.SystemPriorities()[name]; !system {
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: schedulingv1.GroupName, Resource: "priorityclasses"}, name,
		errors.New("this is a system priority class and cannot be deleted"))
}

// sameAlways is for kinds whose generation is counted once: kube-apiserver numbers them at creation and never again.
func sameAlways(runtime.Object, runtime.Object) bool { return true }
