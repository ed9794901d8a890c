// Package limits is the admission plugin LimitRanger: what the LimitRanges of a namespace say of its pods and claims.
package limits

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// Plugin fills in what containers do not ask for, and refuses what asks for too much, too little, or in a ratio that is
// not allowed.
type Plugin struct {
	// Limits is nil where there are no LimitRanges.
	Limits corelisters.LimitRangeLister
	// List reads those of a namespace from storage, when the lister has none: the first may have been created by the same
	// command a moment ago.
	List func(ctx context.Context, namespace string) ([]corev1.LimitRange, error)
}

var (
	_ admission.MutationInterface   = Plugin{}
	_ admission.ValidationInterface = Plugin{}
)

func (Plugin) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

// Admit fills in the defaults of new pods. Those of a claim are no business of ours: it must ask for something.
func (p Plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return p.each(ctx, a, func(limits *corev1.LimitRange) error {
		if pod, ok := a.GetObject().(*corev1.Pod); ok {
			fill(pod, limits)
		}
		return nil
	})
}

// Validate refuses.
func (p Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return p.each(ctx, a, func(limits *corev1.LimitRange) error {
		switch obj := a.GetObject().(type) {
		case *corev1.Pod:
			return checkPod(obj, limits)
		case *corev1.PersistentVolumeClaim:
			return checkClaim(obj, limits)
		}
		return nil
	})
}

func (p Plugin) each(ctx context.Context, a admission.Attributes, do func(*corev1.LimitRange) error) error {
	if p.Limits == nil || !concerns(a) || isLeaving(a) {
		return nil
	}
	all, err := p.of(ctx, a.GetNamespace())
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("unable to %s %v at this time because there was an error enforcing limit ranges", a.GetOperation(), a.GetResource()))
	}
	for _, limits := range all {
		if err := do(limits); err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	return nil
}

// concerns leaves out updates of pods: what their containers ask for cannot be changed but by the subresource resize.
func concerns(a admission.Attributes) bool {
	switch a.GetResource().GroupResource() {
	case corev1.Resource("pods"):
		if a.GetOperation() == admission.Update {
			return a.GetSubresource() == "resize"
		}
	case corev1.Resource("persistentvolumeclaims"):
	default:
		return false
	}
	return a.GetSubresource() == ""
}

// isLeaving spares what is being deleted: its finalizers must be able to go.
func isLeaving(a admission.Attributes) bool {
	if a.GetOldObject() == nil {
		return false
	}
	old, err := meta.Accessor(a.GetOldObject())
	return err == nil && old.GetDeletionTimestamp() != nil
}

func (p Plugin) of(ctx context.Context, namespace string) ([]*corev1.LimitRange, error) {
	all, err := p.Limits.LimitRanges(namespace).List(labels.Everything())
	if err != nil || len(all) > 0 {
		return all, err
	}
	stored, err := p.List(ctx, namespace)
	for i := range stored {
		all = append(all, &stored[i])
	}
	return all, err
}

func checkPod(pod *corev1.Pod, limits *corev1.LimitRange) error {
	var errs []error
	for i := range limits.Spec.Limits {
		item := &limits.Spec.Limits[i]
		switch item.Type {
		case corev1.LimitTypeContainer:
			for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
				for j := range list {
					errs = append(errs, check(item, list[j].Resources.Requests, list[j].Resources.Limits)...)
				}
			}
		case corev1.LimitTypePod:
			requests, most := totals(pod)
			errs = append(errs, check(item, requests, most)...)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// checkClaim goes by requests alone: that is all a claim has to say.
func checkClaim(claim *corev1.PersistentVolumeClaim, limits *corev1.LimitRange) error {
	var errs []error
	requests := claim.Spec.Resources.Requests
	for i := range limits.Spec.Limits {
		item := &limits.Spec.Limits[i]
		if item.Type != corev1.LimitTypePersistentVolumeClaim {
			continue
		}
		for name, bound := range sorted(item.Min) {
			errs = append(errs, atLeast(item.Type, name, bound, requests, nil))
		}
		for name, bound := range sorted(item.Max) {
			errs = append(errs, requestAtMost(item.Type, name, bound, requests))
		}
	}
	return utilerrors.NewAggregate(errs)
}

func check(item *corev1.LimitRangeItem, requests, limits corev1.ResourceList) []error {
	var errs []error
	for name, bound := range sorted(item.Min) {
		errs = append(errs, atLeast(item.Type, name, bound, requests, limits))
	}
	for name, bound := range sorted(item.Max) {
		errs = append(errs, atMost(item.Type, name, bound, requests, limits))
	}
	for name, bound := range sorted(item.MaxLimitRequestRatio) {
		errs = append(errs, ratioAtMost(item.Type, name, bound, requests, limits))
	}
	return compact(errs)
}

func compact(errs []error) []error {
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}
