package limits

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// annotation tells what was filled in.
const annotation = "kubernetes.io/limit-ranger"

// fill gives containers the requests and limits that they do not name.
func fill(pod *corev1.Pod, limits *corev1.LimitRange) {
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
			if set := fillIn(&c.Resources.Requests, requests); len(set) > 0 {
				told = append(told, fmt.Sprintf("%s request for %s %s", strings.Join(set, ", "), list.name, c.Name))
			}
			if set := fillIn(&c.Resources.Limits, most); len(set) > 0 {
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

// fillIn returns the names of what it added, sorted.
func fillIn(to *corev1.ResourceList, from corev1.ResourceList) []string {
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

// totals of a pod: what its containers ask for together, or an init container alone where that is more, unless the pod
// says itself.
func totals(pod *corev1.Pod) (requests, limits corev1.ResourceList) {
	options := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	return resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options)
}
