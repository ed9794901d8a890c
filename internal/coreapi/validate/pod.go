package validate

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Pod validates a pod after any write of its spec.
func Pod(p *corev1.Pod) field.ErrorList {
	errs := ObjectMeta(&p.ObjectMeta, Namespaced, validation.NameIsDNSSubdomain)
	errs = append(errs, podAnnotations(p.Annotations, &p.Spec, field.NewPath("metadata", "annotations"))...)
	spec := field.NewPath("spec")
	errs = append(errs, newPodScope(&p.Spec, &p.ObjectMeta).check(spec)...)
	if grace := p.Spec.TerminationGracePeriodSeconds; grace != nil {
		errs = append(errs, validation.ValidateNonnegativeField(*grace, spec.Child("terminationGracePeriodSeconds"))...)
	}
	if p.Spec.ServiceAccountName != "" {
		return errs
	}
	for i, v := range p.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for j, source := range v.Projected.Sources {
			if source.ServiceAccountToken != nil {
				at := spec.Child("volumes").Index(i).Child("projected", "sources").Index(j).Child("serviceAccountToken")
				errs = append(errs, field.Forbidden(at, "must not be specified when serviceAccountName is not set"))
			}
		}
	}
	return errs
}

// podSpec checks the spec of a template.
func podSpec(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	return newPodScope(s, nil).check(path)
}

// podScope contains the names that the parts of a pod may refer to. meta is nil for a template, because its pods have no names
// yet. A few rules that are newer than existing templates apply only to pods.
type podScope struct {
	spec    *corev1.PodSpec
	meta    *metav1.ObjectMeta
	volumes map[string]*corev1.VolumeSource // valid volumes by name
	claims  sets.Set[string]
}

func newPodScope(s *corev1.PodSpec, meta *metav1.ObjectMeta) *podScope {
	return &podScope{spec: s, meta: meta, volumes: map[string]*corev1.VolumeSource{}, claims: sets.New[string]()}
}

func (p *podScope) check(path *field.Path) field.ErrorList {
	s := p.spec
	errs := p.volumeList(path.Child("volumes"))
	errs = append(errs, p.resourceClaims(path.Child("resourceClaims"))...)
	errs = append(errs, p.containers(path.Child("containers"))...)
	errs = append(errs, p.initContainers(path.Child("initContainers"))...)
	errs = append(errs, p.ephemeralContainers(path.Child("ephemeralContainers"))...)
	errs = append(errs, p.envFiles(path)...)
	errs = append(errs, podResources(s, path.Child("resources"))...)
	errs = append(errs, Required(s.RestartPolicy, path.Child("restartPolicy"), corev1.RestartPolicyAlways,
		corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, Required(s.DNSPolicy, path.Child("dnsPolicy"), corev1.DNSClusterFirstWithHostNet,
		corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)...)
	errs = append(errs, dnsConfig(s, path.Child("dnsConfig"))...)
	errs = append(errs, podNumbers(s, path)...)
	errs = append(errs, podNames(s, path)...)
	errs = append(errs, metav1validation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, podAffinity(s.Affinity, path.Child("affinity"))...)
	errs = append(errs, spread(s.TopologySpreadConstraints, path.Child("topologySpreadConstraints"))...)
	errs = append(errs, Tolerations(s.Tolerations, path.Child("tolerations"))...)
	errs = append(errs, schedulingGates(s.SchedulingGates, path.Child("schedulingGates"))...)
	for i, gate := range s.ReadinessGates {
		errs = append(errs, Qualified(string(gate.ConditionType), path.Child("readinessGates").Index(i).Child("conditionType"))...)
	}
	errs = append(errs, podSecurity(s, path)...)
	return append(errs, operatingSystem(s, path)...)
}

func podNumbers(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.TerminationGracePeriodSeconds == nil {
		errs = append(errs, field.Required(path.Child("terminationGracePeriodSeconds"), ""))
	}
	if d := s.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > math.MaxInt32) {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *d, utilvalidation.InclusiveRangeError(1, math.MaxInt32)))
	}
	if len(s.Overhead) > 0 {
		overhead := &corev1.ResourceRequirements{Limits: s.Overhead}
		errs = append(errs, containerResources(overhead, nil, path.Child("overhead"))...)
	}
	return errs
}

// podNames checks the names of other objects in a pod spec, and the host names.
func podNames(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	named := func(value, name string, messages func(string) []string) {
		if value != "" {
			errs = append(errs, Invalid(path.Child(name), value, messages(value))...)
		}
	}
	subdomain := func(v string) []string { return validation.NameIsDNSSubdomain(v, false) }
	named(s.NodeName, "nodeName", subdomain)
	named(s.ServiceAccountName, "serviceAccountName", subdomain)
	named(s.PriorityClassName, "priorityClassName", subdomain)
	named(s.SchedulerName, "schedulerName", utilvalidation.IsQualifiedName)
	named(s.Hostname, "hostname", utilvalidation.IsDNS1123Label)
	named(s.Subdomain, "subdomain", utilvalidation.IsDNS1123Label)
	if s.DeprecatedServiceAccount != s.ServiceAccountName {
		errs = append(errs, field.Invalid(path.Child("deprecatedServiceAccount"), s.DeprecatedServiceAccount,
			fmt.Sprintf("must be the same as serviceAccountName: %q", s.ServiceAccountName)))
	}
	if s.RuntimeClassName != nil {
		errs = append(errs, Invalid(path.Child("runtimeClassName"), *s.RuntimeClassName, subdomain(*s.RuntimeClassName))...)
	}
	if s.PreemptionPolicy != nil {
		errs = append(errs, Required(*s.PreemptionPolicy, path.Child("preemptionPolicy"), corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	errs = append(errs, hostnameOverride(s, path.Child("hostnameOverride"))...)
	for i, alias := range s.HostAliases {
		at := path.Child("hostAliases").Index(i)
		errs = append(errs, utilvalidation.IsValidIPForLegacyField(at.Child("ip"), alias.IP, true, nil)...)
		errs = append(errs, EachValue(alias.Hostnames, at.Child("hostnames"), DnsSubdomain)...)
	}
	return errs
}

// maxHostname is the limit of Linux.
const maxHostname = 64

func hostnameOverride(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	if s.HostnameOverride == nil {
		return nil
	}
	var errs field.ErrorList
	if IsTrue(s.SetHostnameAsFQDN) {
		errs = append(errs, field.Forbidden(path, "may not be specified when setHostnameAsFQDN is true"))
	}
	if s.HostNetwork {
		errs = append(errs, field.Forbidden(path, "may not be specified when hostNetwork is true"))
	}
	if len(*s.HostnameOverride) > maxHostname {
		errs = append(errs, field.TooLong(path, "", maxHostname))
	}
	return append(errs, DnsSubdomain(*s.HostnameOverride, path)...)
}

// Template validates a pod template. It ignores name and namespace, which pods do not get from the template.
func Template(t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabels(t.Labels, path.Child("labels"))
	errs = append(errs, validation.ValidateAnnotations(t.Annotations, path.Child("annotations"))...)
	errs = append(errs, podAnnotations(t.Annotations, &t.Spec, path.Child("annotations"))...)
	errs = append(errs, podSpec(&t.Spec, path.Child("spec"))...)
	if len(t.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("spec", "ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	return errs
}

// RestartAlways checks templates of pods that a controller replaces when they end. kind is the name for error messages.
func RestartAlways(t *corev1.PodTemplateSpec, path *field.Path, kind string) field.ErrorList {
	var errs field.ErrorList
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), t.Spec.RestartPolicy,
			[]corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("spec", "activeDeadlineSeconds"),
			"activeDeadlineSeconds in "+kind+" is not Supported"))
	}
	return errs
}

// LabelsMatch refuses a template that does not match the selector, because the controller would create pods without end.
func LabelsMatch(t *corev1.PodTemplateSpec, s labels.Selector, path *field.Path) field.ErrorList {
	if s.Matches(labels.Set(t.Labels)) {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`")}
}

const (
	seccompPodAnnotation     = "seccomp.security.alpha.kubernetes.io/pod"
	seccompContainerPrefix   = "container.seccomp.security.alpha.kubernetes.io/"
	AppArmorContainerPrefix  = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	AppArmorProfilePrefix    = corev1.DeprecatedAppArmorBetaProfileNamePrefix
	AppArmorRuntimeDefault   = corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	AppArmorUnconfined       = corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	seccompLocalhostProfile  = "localhost/"
	seccompRuntimeDefault    = "runtime/default"
	seccompDockerDefault     = "docker/default"
	seccompProfileUnconfined = "unconfined"
)

// podAnnotations checks the annotations that kubelets or controllers read.
func podAnnotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if value, mirror := annotations[corev1.MirrorPodAnnotationKey]; mirror && spec.NodeName == "" {
		errs = append(errs, field.Invalid(path.Key(corev1.MirrorPodAnnotationKey), value,
			"must set spec.nodeName if mirror pod annotation is set"))
	}
	if cost, said := annotations[corev1.PodDeletionCost]; said && !isDeletionCost(cost) {
		errs = append(errs, field.Invalid(path.Key(corev1.PodDeletionCost), cost, "must be a 32bit integer"))
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		value := annotations[key]
		switch {
		case key == seccompPodAnnotation, strings.HasPrefix(key, seccompContainerPrefix):
			errs = append(errs, seccompName(value, path.Child(key))...)
		case strings.HasPrefix(key, AppArmorContainerPrefix):
			container := strings.TrimPrefix(key, AppArmorContainerPrefix)
			if !HasContainer(spec, container) {
				errs = append(errs, field.Invalid(path.Key(key), container, "container not found"))
			}
			if err := appArmorName(value); err != nil {
				errs = append(errs, field.Invalid(path.Key(key), value, err.Error()))
			}
		}
	}
	return errs
}

// isDeletionCost refuses other spellings of a number, because controllers parse and compare it repeatedly.
func isDeletionCost(text string) bool {
	if strings.HasPrefix(text, "+") || len(text) > 1 && strings.HasPrefix(text, "0") {
		return false
	}
	_, err := strconv.ParseInt(text, 10, 32)
	return err == nil
}

func seccompName(profile string, path *field.Path) field.ErrorList {
	local, isLocal := strings.CutPrefix(profile, seccompLocalhostProfile)
	switch {
	case profile == seccompRuntimeDefault, profile == seccompDockerDefault, profile == seccompProfileUnconfined:
		return nil
	case isLocal:
		return descendingPath(local, path)
	}
	return field.ErrorList{field.Invalid(path, profile, "must be a valid seccomp profile")}
}

func appArmorName(profile string) error {
	if profile == "" || profile == AppArmorRuntimeDefault || profile == AppArmorUnconfined {
		return nil
	}
	if !strings.HasPrefix(profile, AppArmorProfilePrefix) {
		return errors.New("invalid AppArmor profile name: " + strconv.Quote(profile))
	}
	return nil
}

func HasContainer(spec *corev1.PodSpec, name string) bool {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		if slices.ContainsFunc(list, func(c corev1.Container) bool { return c.Name == name }) {
			return true
		}
	}
	return slices.ContainsFunc(spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}

// PodAnnotationsUpdate makes the annotations immutable that kubelets read when they start a pod.
func PodAnnotationsUpdate(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(old.Annotations)) {
		if value, kept := p.Annotations[key]; kept && value == old.Annotations[key] {
			continue
		}
		errs = append(errs, frozenAnnotation(key, "remove or update", path)...)
	}
	for _, key := range slices.Sorted(maps.Keys(p.Annotations)) {
		if _, before := old.Annotations[key]; !before {
			errs = append(errs, frozenAnnotation(key, "add", path)...)
		}
	}
	return append(errs, podAnnotations(p.Annotations, &p.Spec, path)...)
}

func frozenAnnotation(key, verb string, path *field.Path) field.ErrorList {
	switch {
	case strings.HasPrefix(key, AppArmorContainerPrefix):
		return field.ErrorList{field.Forbidden(path.Key(key), "may not "+verb+" AppArmor annotations")}
	case key == corev1.MirrorPodAnnotationKey:
		return field.ErrorList{field.Forbidden(path.Key(key), "may not "+verb+" mirror pod annotation")}
	}
	return nil
}
