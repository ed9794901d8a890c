package core

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	quantities "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	helper "k8s.io/component-helpers/resource"

	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

// FieldsFromAppArmor sets the AppArmor profiles of containers from the annotations that preceded the field, because kubelets
// read only the field.
func FieldsFromAppArmor(ctx context.Context, obj runtime.Object) {
	pod := obj.(*corev1.Pod)
	if pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows {
		return
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
				continue
			}
			key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
			annotation, annotated := pod.Annotations[key]
			if !annotated {
				continue
			}
			profile := appArmorOf(annotation)
			whole := pod.Spec.SecurityContext
			if profile != nil && whole != nil && apiequality.Semantic.DeepEqual(whole.AppArmorProfile, profile) {
				continue
			}
			if profile != nil {
				if c.SecurityContext == nil {
					c.SecurityContext = &corev1.SecurityContext{}
				}
				c.SecurityContext.AppArmorProfile = profile
			}
			warning.AddWarning(ctx, "", fmt.Sprintf(`metadata.annotations[%s]: deprecated since v1.30; use the "appArmorProfile" field instead`, key))
		}
	}
}

// appArmorOf converts an annotation to a profile. It returns nil if the field has no equivalent.
func appArmorOf(annotation string) *corev1.AppArmorProfile {
	switch local, isLocal := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix); {
	case annotation == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case annotation == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case isLocal:
		profile := &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &local}
		if len(validate.AppArmor(profile, nil)) == 0 {
			return profile
		}
	}
	return nil
}

// QualityOfService returns the class by which a kubelet ranks a pod when its node runs short of resources. The limits of
// Guaranteed pods are fully reserved. BestEffort pods have no reservation.
func QualityOfService(pod *corev1.Pod) corev1.PodQOSClass {
	asked, limited, every := false, corev1.ResourceList{}, true
	requested := corev1.ResourceList{}
	add := func(r *corev1.ResourceRequirements) {
		asked = sum(requested, r.Requests) || asked
		found := sum(limited, r.Limits)
		asked = found || asked
		every = every && positive(r.Limits, corev1.ResourceCPU) && positive(r.Limits, corev1.ResourceMemory)
	}
	if own := pod.Spec.Resources; own != nil && helper.IsPodLevelResourcesSet(pod) {
		add(own)
	} else {
		for i := range pod.Spec.Containers {
			add(&pod.Spec.Containers[i].Resources)
		}
		for i := range pod.Spec.InitContainers {
			add(&pod.Spec.InitContainers[i].Resources)
		}
	}
	switch {
	case !asked:
		return corev1.PodQOSBestEffort
	case !every || len(requested) != len(limited):
		return corev1.PodQOSBurstable
	}
	for name, quantity := range requested {
		if limit, there := limited[name]; !there || limit.Cmp(quantity) != 0 {
			return corev1.PodQOSBurstable
		}
	}
	return corev1.PodQOSGuaranteed
}

// sum adds the positive quantities of CPU and memory, and reports whether there were any.
func sum(to, from corev1.ResourceList) bool {
	found := false
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if quantity, there := from[name]; there && quantity.Cmp(quantities.Quantity{}) > 0 {
			total := to[name]
			total.Add(quantity)
			to[name] = total
			found = true
		}
	}
	return found
}

func positive(list corev1.ResourceList, name corev1.ResourceName) bool {
	quantity := list[name]
	return quantity.Sign() > 0
}

// SetPodCondition replaces the condition of the same type. It keeps the transition time if the status is unchanged.
func SetPodCondition(status *corev1.PodStatus, condition corev1.PodCondition) {
	condition.LastTransitionTime = metav1.Now()
	for i := range status.Conditions {
		if status.Conditions[i].Type != condition.Type {
			continue
		}
		if status.Conditions[i].Status == condition.Status {
			condition.LastTransitionTime = status.Conditions[i].LastTransitionTime
		}
		status.Conditions[i] = condition
		return
	}
	status.Conditions = append(status.Conditions, condition)
}

// podStrategy adds the grace period for the termination of a pod's processes.
type podStrategy struct {
	registry.Strategy
}

func withGrace(s registry.Strategy) rest.RESTDeleteStrategy { return podStrategy{s} }

// CheckGracefulDelete decides how long the pod object outlives the request. Only a kubelet ends the period early, so a pod that
// does not run on a node is deleted immediately.
func (podStrategy) CheckGracefulDelete(_ context.Context, obj runtime.Object, options *metav1.DeleteOptions) bool {
	if options == nil {
		return false
	}
	pod := obj.(*corev1.Pod)
	var seconds int64
	switch {
	case pod.Spec.NodeName == "", pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
	case options.GracePeriodSeconds != nil:
		seconds = *options.GracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	if seconds < 0 {
		seconds = 1 // as kubelets do
	}
	options.GracePeriodSeconds = &seconds
	return true
}

// preparePod resets the status of a new pod, and adds the values of its labels to its selectors of other pods.
func preparePod(obj runtime.Object) {
	pod := obj.(*corev1.Pod)
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	PodResources(pod)
	if len(pod.Spec.SchedulingGates) > 0 {
		SetPodCondition(&pod.Status, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates",
		})
	}
	if a := pod.Spec.Affinity; a != nil {
		if a.PodAffinity != nil {
			selectByOwnLabels(pod, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if a.PodAntiAffinity != nil {
			selectByOwnLabels(pod, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		addOwnLabels(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn, pod.Labels)
	}
	pod.Status.QOSClass = QualityOfService(pod)
}

// selectByOwnLabels lets pods of one revision avoid each other but not pods of another revision (KEP-3633).
func selectByOwnLabels(pod *corev1.Pod, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
	add := func(t *corev1.PodAffinityTerm) {
		addOwnLabels(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn, pod.Labels)
		addOwnLabels(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn, pod.Labels)
	}
	for i := range required {
		add(&required[i])
	}
	for i := range preferred {
		add(&preferred[i].PodAffinityTerm)
	}
}

func addOwnLabels(s *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator, labels map[string]string) {
	if s == nil {
		return // selects nothing, and must not select more
	}
	for _, key := range keys {
		if value, there := labels[key]; there {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
		}
	}
}

// keepPodResources is for clients that are older than pod-level resources and omit the field.
func keepPodResources(obj, old runtime.Object) {
	pod, before := obj.(*corev1.Pod), old.(*corev1.Pod)
	if pod.Spec.Resources == nil && before.Spec.Resources != nil {
		pod.Spec.Resources = before.Spec.Resources.DeepCopy()
	}
}

// keepOfPodStatus keeps fields that kubelets of other releases omit when they write a status: the QoS class, the allocated
// resources, and the generation of each condition. It also keeps the owner references: old kubelets wrote wrong ones, which the
// garbage collector acted on.
func keepOfPodStatus(obj, old runtime.Object) {
	pod, before := obj.(*corev1.Pod), old.(*corev1.Pod)
	pod.OwnerReferences = before.OwnerReferences
	pod.DeletionTimestamp = before.DeletionTimestamp
	next, was := &pod.Status, &before.Status
	next.QOSClass = cmp.Or(next.QOSClass, was.QOSClass)
	if next.ResourceClaimStatuses == nil {
		next.ResourceClaimStatuses = was.ResourceClaimStatuses
	}
	if next.ExtendedResourceClaimStatus == nil {
		next.ExtendedResourceClaimStatus = was.ExtendedResourceClaimStatus
	}
	next.ObservedGeneration = cmp.Or(next.ObservedGeneration, was.ObservedGeneration)
	if was.NodeAllocatableResourceClaimStatuses == nil { // DRANodeAllocatableResources is alpha, and off
		next.NodeAllocatableResourceClaimStatuses = nil
	}
	if was.VolumeHealth == nil { // CSIVolumeHealth is alpha, and off
		next.VolumeHealth = nil
	}
	earlier := slices.Clone(was.Conditions) // there may be several of one type
	for i := range next.Conditions {
		at := slices.IndexFunc(earlier, func(c corev1.PodCondition) bool { return c.Type == next.Conditions[i].Type })
		if at < 0 {
			continue
		}
		if next.Conditions[i].ObservedGeneration == 0 {
			next.Conditions[i].ObservedGeneration = earlier[at].ObservedGeneration
		}
		earlier = slices.Delete(earlier, at, at+1)
	}
}

func podResource() registry.Resource {
	return registry.Resource{
		Name: "pods", Singular: "pod", ShortNames: []string{"po"}, Categories: []string{"all"},
		Object: &corev1.Pod{}, List: &corev1.PodList{}, WatchCache: true, ReturnDeletedObject: true, AllowUnconditionalUpdate: true, Generations: true,
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {containers: [{name: c, image: busybox}]}",
		},
		Rules:    validate.WithStatus(validatePod, validatePodUpdate, validatePodStatus),
		Defaults: defaults.Of(defaultPod),
		Warnings: validate.Warn(warningsOfPod),
		Columns:  podColumns,
		Fields:   podFields(),
		Spec:     registry.SpecOf(func(p *corev1.Pod) *corev1.PodSpec { return &p.Spec }),
		Status:   registry.StatusOf(func(p *corev1.Pod) *corev1.PodStatus { return &p.Status }), StatusChangesMetadata: true,
		PrepareCreate: preparePod, PrepareUpdate: keepPodResources, PrepareStatus: keepOfPodStatus,
		StatusResetFields: [][]string{{"metadata", "ownerReferences"}, {"metadata", "deletionTimestamp"}},
		DeleteStrategy:    withGrace, WarnOnUpdate: never, Stamp: FieldsFromAppArmor,
		PodSpec:  registry.PodSpecOf(func(p *corev1.Pod) *corev1.PodSpec { return &p.Spec }, "spec"),
		Storages: podStorages,
	}
}

func never(_, _ runtime.Object) bool { return false }

func podFields() *selectable.Fields {
	return selectable.Of(selectable.WithAliases(selectable.InNamespace("spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
		"spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs",
		"status.nominatedNodeName"), map[string]string{"spec.host": "spec.nodeName"}), addPod)
}

func addPod(set fields.Set, pod *corev1.Pod) {
	set["spec.nodeName"] = pod.Spec.NodeName
	set["spec.restartPolicy"] = string(pod.Spec.RestartPolicy)
	set["spec.schedulerName"] = pod.Spec.SchedulerName
	set["spec.serviceAccountName"] = pod.Spec.ServiceAccountName
	set["spec.hostNetwork"] = strconv.FormatBool(pod.Spec.HostNetwork)
	set["status.phase"] = string(pod.Status.Phase)
	set["status.nominatedNodeName"] = pod.Status.NominatedNodeName
	set["status.podIP"], set["status.podIPs"] = pod.Status.PodIP, pod.Status.PodIP
	if len(pod.Status.PodIPs) > 0 {
		set["status.podIP"], set["status.podIPs"] = pod.Status.PodIPs[0].IP, pod.Status.PodIPs[0].IP
	}
}
