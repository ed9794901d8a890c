package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/validate"
)

// validateResize validates changed amounts of CPU and memory for the containers of a pod. The QoS class, by which a kubelet
// ranks the pod when memory runs out, may not change.
func validateResize(p, old *corev1.Pod) field.ErrorList {
	if _, static := old.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	}
	if old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "windows pods cannot be resized")}
	}
	errs := append(validate.MetaUpdate(p, old), validate.Pod(p)...)
	path := field.NewPath("spec")
	if QualityOfService(p) != QualityOfService(old) {
		errs = append(errs, field.Invalid(path, p.Status.QOSClass, "Pod QOS Class may not change as a result of resizing"))
	}
	if !resizable(old) {
		errs = append(errs, field.Forbidden(path, "Pod running on node without support for resize"))
	}
	if order := sameContainers(&p.Spec, &old.Spec, path); len(order) > 0 {
		return append(errs, order...)
	}
	left := p.Spec.DeepCopy()
	errs = append(errs, resizedPod(left, p.Spec.Resources, old.Spec.Resources, path)...)
	errs = append(errs, resizedContainers(left.InitContainers, old.Spec.InitContainers, path.Child("initContainers"))...)
	errs = append(errs, resizedContainers(left.Containers, old.Spec.Containers, path.Child("containers"))...)
	for i := range left.Containers {
		if !apiequality.Semantic.DeepEqual(left.Containers[i], old.Spec.Containers[i]) {
			errs = append(errs, field.Forbidden(path, "only cpu and memory resources are mutable"))
		}
	}
	for i := range left.InitContainers {
		if !apiequality.Semantic.DeepEqual(left.InitContainers[i], old.Spec.InitContainers[i]) {
			errs = append(errs, field.Forbidden(path.Child("initContainers").Index(i),
				"only cpu and memory resources for init or sidecar containers are mutable"))
		}
	}
	if len(errs) == 0 && !apiequality.Semantic.DeepEqual(*left, old.Spec) {
		errs = append(errs, field.Forbidden(path, "only cpu and memory resources are mutable"))
	}
	return errs
}

// resizable reports whether the pod's kubelet reports the resources of containers. An older kubelet cannot change them.
func resizable(p *corev1.Pod) bool {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running != nil {
			return c.Resources != nil
		}
	}
	return true
}

func sameContainers(next, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name      string
		next, old []corev1.Container
	}{{"containers", next.Containers, old.Containers}, {"initContainers", next.InitContainers, old.InitContainers}} {
		at := path.Child(list.name)
		if len(list.next) != len(list.old) {
			errs = append(errs, field.Forbidden(at, list.name+" may not be added or removed on resize"))
			continue
		}
		for i := range list.old {
			if list.next[i].Name != list.old[i].Name {
				errs = append(errs, field.Forbidden(at.Index(i).Child("name"), list.name+" may not be renamed or reordered on resize"))
			}
		}
	}
	return errs
}

// resizedContainers checks the amounts, and reverts in next the changes that are allowed.
func resizedContainers(next, old []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range next {
		at := path.Index(i).Child("resources")
		errs = append(errs, forbidRemoval(next[i].Resources.Requests, old[i].Resources.Requests, "resource requests", at.Child("requests"))...)
		errs = append(errs, forbidRemoval(next[i].Resources.Limits, old[i].Resources.Limits, "resource limits", at.Child("limits"))...)
		takeBack(&next[i].Resources, &old[i].Resources)
	}
	return errs
}

func resizedPod(left *corev1.PodSpec, next, old *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	at := path.Child("resources")
	switch {
	case next == nil && old == nil:
		return nil
	case next == nil:
		return field.ErrorList{field.Forbidden(at, "pod-level resources cannot be removed")}
	}
	var errs field.ErrorList
	before := &corev1.ResourceRequirements{}
	if old != nil {
		before = old
		errs = append(errs, forbidRemoval(next.Requests, old.Requests, "pod-level resource requests", at.Child("requests"))...)
		errs = append(errs, forbidRemoval(next.Limits, old.Limits, "pod-level resource limits", at.Child("limits"))...)
	}
	takeBack(left.Resources, before)
	if !apiequality.Semantic.DeepEqual(left.Resources, before) {
		errs = append(errs, field.Forbidden(path, "only cpu and memory resources are mutable at pod-level"))
	}
	left.Resources = old
	return errs
}

func forbidRemoval(next, old corev1.ResourceList, what string, path *field.Path) field.ErrorList {
	for name := range old {
		if _, there := next[name]; !there {
			return field.ErrorList{field.Forbidden(path, fmt.Sprintf("%s cannot be removed", what))}
		}
	}
	return nil
}

func takeBack(next, old *corev1.ResourceRequirements) {
	next.Limits = withComputeOf(next.Limits, old.Limits)
	next.Requests = withComputeOf(next.Requests, old.Requests)
}

func withComputeOf(next, old corev1.ResourceList) corev1.ResourceList {
	merged := next.DeepCopy()
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		delete(merged, name)
		if quantity, there := old[name]; there {
			if merged == nil {
				merged = corev1.ResourceList{}
			}
			merged[name] = quantity
		}
	}
	return merged
}
