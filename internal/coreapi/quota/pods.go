package quota

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	resourcehelper "k8s.io/component-helpers/resource"
)

const (
	requestsPrefix = corev1.DefaultResourceRequestsPrefix
	// devicePrefix is the prefix of resources that a device class provides implicitly.
	devicePrefix = "deviceclass.resource.kubernetes.io/"
)

var podCount = generic.ObjectCountQuotaResourceNameFor(corev1.Resource("pods"))

var podNames = []corev1.ResourceName{
	podCount, corev1.ResourcePods,
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
}

// mustBeNamed contains the resources that every container must specify if a quota limits them. Upstream calls this coupling a
// mistake, but clients rely on it.
var mustBeNamed = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
}

func pods(list lister, now func() time.Time) *evaluator {
	return &evaluator{
		resource: corev1.Resource("pods"), charges: chargesPod, names: isPodName, inScope: podInScope, requires: podRequires, list: list,
		usage: func(obj runtime.Object) (corev1.ResourceList, error) {
			pod, ok := obj.(*corev1.Pod)
			if !ok {
				return nil, unexpectedType("Pod", obj)
			}
			return podUsage(pod, now()), nil
		},
	}
}

// chargesPod reports whether a request may increase the usage of a pod. Creates may, and updates that change the scope or
// resize the pod. Other updates cannot change its resources.
func chargesPod(a admission.Attributes) bool {
	switch a.GetSubresource() {
	case "":
		if a.GetOperation() == admission.Update {
			now, ok := a.GetObject().(*corev1.Pod)
			old, okOld := a.GetOldObject().(*corev1.Pod)
			return ok && okOld && isTerminating(now) != isTerminating(old)
		}
		return a.GetOperation() == admission.Create
	case "resize":
		return a.GetOperation() == admission.Update
	}
	return false
}

func isPodName(name corev1.ResourceName) bool {
	text := string(name)
	if slices.Contains(podNames, name) || strings.HasPrefix(text, corev1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(text, corev1.ResourceRequestsHugePagesPrefix) {
		return true
	}
	// Extended resources cannot be overcommitted, so only requests are counted.
	rest, requested := strings.CutPrefix(text, requestsPrefix)
	return requested && (isExtended(rest) || strings.HasPrefix(rest, devicePrefix))
}

// isExtended reports whether a resource is outside the domain kubernetes.io.
func isExtended(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, corev1.ResourceDefaultNamespacePrefix)
}

func podRequires(required []corev1.ResourceName, obj runtime.Object) error {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return unexpectedType("Pod", obj)
	}
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		return nil
	}
	missing := map[corev1.ResourceName][]string{}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		named := resourceUsage(c.Resources.Requests, c.Resources.Limits)
		for _, name := range required {
			if _, is := named[name]; !is && slices.Contains(mustBeNamed, name) && !slices.Contains(missing[name], c.Name) {
				missing[name] = append(missing[name], c.Name)
			}
		}
	}
	var parts []string
	for name, containers := range missing {
		slices.Sort(containers)
		parts = append(parts, fmt.Sprintf("%s for: %s", name, strings.Join(containers, ",")))
	}
	if len(parts) == 0 {
		return nil
	}
	slices.Sort(parts)
	return fmt.Errorf("must specify %s", strings.Join(parts, "; "))
}

func podUsage(pod *corev1.Pod, now time.Time) corev1.ResourceList {
	usage := corev1.ResourceList{podCount: one()} // the object exists in every state of the pod
	if !runs(pod, now) {
		return usage
	}
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	usage = quota.Add(usage, resourceUsage(resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options)))
	usage[corev1.ResourcePods] = one()
	return usage
}

// runs reports whether a pod may use resources. A pod beyond its grace period does not count: its node may be lost, and its
// replacement needs the space.
func runs(pod *corev1.Pod, now time.Time) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return true
	}
	grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	return !now.After(pod.DeletionTimestamp.Add(grace))
}

// resourceUsage converts requests and limits to the resource names of quotas.
func resourceUsage(requests, limits corev1.ResourceList) corev1.ResourceList {
	usage := corev1.ResourceList{}
	for name, n := range requests {
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
			strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			usage[name] = n
			usage[requestsPrefix+name] = n
		case isExtended(string(name)), strings.HasPrefix(string(name), devicePrefix):
			usage[requestsPrefix+name] = n
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if n, ok := limits[name]; ok {
			usage["limits."+name] = n
		}
	}
	return usage
}

func podInScope(s corev1.ScopedResourceSelectorRequirement, obj runtime.Object) (bool, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return false, unexpectedType("Pod", obj)
	}
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return isTerminating(pod), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !isTerminating(pod), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return isBestEffort(pod), nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !isBestEffort(pod), nil
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return looksIntoOtherNamespaces(pod), nil
	case corev1.ResourceQuotaScopePriorityClass:
		if pod.Spec.PriorityClassName == "" {
			if s.Operator == corev1.ScopeSelectorOpExists {
				return false, nil
			}
			return matchesSelector(s)
		}
		if s.Operator == corev1.ScopeSelectorOpExists {
			return true, nil
		}
		return matchesSelector(s, pod.Spec.PriorityClassName)
	}
	return false, nil
}

// isTerminating reports whether a pod has a deadline, the criterion of the scope Terminating.
func isTerminating(pod *corev1.Pod) bool {
	return pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
}

// isBestEffort reports whether no container requests or limits CPU or memory.
func isBestEffort(pod *corev1.Pod) bool {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass == corev1.PodQOSBestEffort
	}
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		return asksForNothing(*pod.Spec.Resources)
	}
	return !slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
		return !asksForNothing(c.Resources)
	})
}

func asksForNothing(r corev1.ResourceRequirements) bool {
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if n, ok := list[name]; ok && !n.IsZero() {
				return false
			}
		}
	}
	return true
}

func looksIntoOtherNamespaces(pod *corev1.Pod) bool {
	affinity := pod.Spec.Affinity
	if affinity == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	var weighted []corev1.WeightedPodAffinityTerm
	if a := affinity.PodAffinity; a != nil {
		terms = append(terms, a.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted = append(weighted, a.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if a := affinity.PodAntiAffinity; a != nil {
		terms = append(terms, a.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted = append(weighted, a.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	for _, w := range weighted {
		terms = append(terms, w.PodAffinityTerm)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool {
		return len(t.Namespaces) > 0 || t.NamespaceSelector != nil
	})
}
