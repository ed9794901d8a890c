package plugins

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// limitRanger sets default requests and limits of containers, and refuses requests and limits outside the minimum, maximum and
// ratio of a LimitRange.
type limitRanger struct {
	// Limits is nil if LimitRanges are not served.
	Limits corelisters.LimitRangeLister
	// List reads a namespace's LimitRanges from storage if the lister has none, because they may be new.
	List func(ctx context.Context, namespace string) ([]corev1.LimitRange, error)
}

var (
	_ admission.MutationInterface   = limitRanger{}
	_ admission.ValidationInterface = limitRanger{}
)

func (limitRanger) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

// Admit sets the defaults of new pods. Claims have no defaults: they must request a size.
func (p limitRanger) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return p.each(ctx, a, func(limits *corev1.LimitRange) error {
		if pod, ok := a.GetObject().(*corev1.Pod); ok {
			applyDefaults(pod, limits)
		}
		return nil
	})
}

// Validate refuses requests and limits outside the LimitRanges.
func (p limitRanger) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
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

func (p limitRanger) each(ctx context.Context, a admission.Attributes, do func(*corev1.LimitRange) error) error {
	if p.Limits == nil || !isLimited(a) || isTerminating(a) {
		return nil
	}
	all, err := p.limitRanges(ctx, a.GetNamespace())
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

// isLimited reports whether LimitRanges apply to a request. Updates of pods are exempt, because only the subresource resize can
// change their requests.
func isLimited(a admission.Attributes) bool {
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

// isTerminating reports whether an object is being deleted. Such objects are not checked, so that finalizers can be removed.
func isTerminating(a admission.Attributes) bool {
	if a.GetOldObject() == nil {
		return false
	}
	old, err := meta.Accessor(a.GetOldObject())
	return err == nil && old.GetDeletionTimestamp() != nil
}

func (p limitRanger) limitRanges(ctx context.Context, namespace string) ([]*corev1.LimitRange, error) {
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
					errs = append(errs, checkItem(item, list[j].Resources.Requests, list[j].Resources.Limits)...)
				}
			}
		case corev1.LimitTypePod:
			requests, most := totals(pod)
			errs = append(errs, checkItem(item, requests, most)...)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// checkClaim checks requests only, because claims have no limits.
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

func checkItem(item *corev1.LimitRangeItem, requests, limits corev1.ResourceList) []error {
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
	return withoutDuplicates(errs)
}

func withoutDuplicates(errs []error) []error {
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}

// annotation lists the defaults that were set.
const annotation = "kubernetes.io/limit-ranger"

// applyDefaults sets missing requests and limits of containers.
func applyDefaults(pod *corev1.Pod, limits *corev1.LimitRange) {
	requests, most := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range limits.Spec.Limits {
		if item := &limits.Spec.Limits[i]; item.Type == corev1.LimitTypeContainer {
			maps.Copy(requests, item.DefaultRequest)
			maps.Copy(most, item.Default)
		}
	}
	var told []string
	for _, list := range []struct {
		name       string
		containers []corev1.Container
	}{{"container", pod.Spec.Containers}, {"init container", pod.Spec.InitContainers}} {
		for i := range list.containers {
			c := &list.containers[i]
			if set := applyDefaultList(&c.Resources.Requests, requests); len(set) > 0 {
				told = append(told, fmt.Sprintf("%s request for %s %s", strings.Join(set, ", "), list.name, c.Name))
			}
			if set := applyDefaultList(&c.Resources.Limits, most); len(set) > 0 {
				told = append(told, fmt.Sprintf("%s limit for %s %s", strings.Join(set, ", "), list.name, c.Name))
			}
		}
	}
	if len(told) == 0 {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[annotation] = "LimitRanger plugin set: " + strings.Join(told, "; ")
}

// applyDefaultList returns the sorted names of the values that it added.
func applyDefaultList(to *corev1.ResourceList, from corev1.ResourceList) []string {
	var set []string
	for name, value := range from {
		if _, there := (*to)[name]; there {
			continue
		}
		if *to == nil {
			*to = corev1.ResourceList{}
		}
		(*to)[name] = value.DeepCopy()
		set = append(set, string(name))
	}
	slices.Sort(set)
	return set
}

// totals returns the requests and limits of a pod: the pod-level ones, or else the maximum of the sum over its containers and
// the largest init container.
func totals(pod *corev1.Pod) (requests, limits corev1.ResourceList) {
	options := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	return resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options)
}

// The messages are exactly upstream's, because users search for them.

// sorted yields a list by name, so that several errors have a fixed order.
func sorted(list corev1.ResourceList) iter.Seq2[corev1.ResourceName, resource.Quantity] {
	return func(yield func(corev1.ResourceName, resource.Quantity) bool) {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if !yield(name, list[name]) {
				return
			}
		}
	}
}

func atLeast(of corev1.LimitType, name corev1.ResourceName, bound resource.Quantity, requests, limits corev1.ResourceList) error {
	request, asked := requests[name]
	limit, limited := limits[name]
	switch {
	case !asked:
		return fmt.Errorf("minimum %s usage per %s is %s.  No request is specified", name, of, bound.String())
	case request.Cmp(bound) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but request is %s", name, of, bound.String(), request.String())
	case limited && limit.Cmp(bound) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but limit is %s", name, of, bound.String(), limit.String())
	}
	return nil
}

func atMost(of corev1.LimitType, name corev1.ResourceName, bound resource.Quantity, requests, limits corev1.ResourceList) error {
	request, asked := requests[name]
	limit, limited := limits[name]
	switch {
	case !limited:
		return fmt.Errorf("maximum %s usage per %s is %s.  No limit is specified", name, of, bound.String())
	case limit.Cmp(bound) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but limit is %s", name, of, bound.String(), limit.String())
	case asked && request.Cmp(bound) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, of, bound.String(), request.String())
	}
	return nil
}

func requestAtMost(of corev1.LimitType, name corev1.ResourceName, bound resource.Quantity, requests corev1.ResourceList) error {
	request, asked := requests[name]
	switch {
	case !asked:
		return fmt.Errorf("maximum %s usage per %s is %s.  No request is specified", name, of, bound.String())
	case request.Cmp(bound) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, of, bound.String(), request.String())
	}
	return nil
}

func ratioAtMost(of corev1.LimitType, name corev1.ResourceName, bound resource.Quantity, requests, limits corev1.ResourceList) error {
	request, limit := requests[name], limits[name] // missing ones are zero
	switch {
	case request.IsZero():
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", name, of, bound.String())
	case limit.IsZero():
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0", name, of, bound.String())
	}
	if ratio := limit.AsApproximateFloat64() / request.AsApproximateFloat64(); ratio > bound.AsApproximateFloat64() {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but provided ratio is %f", name, of, bound.String(), ratio)
	}
	return nil
}
