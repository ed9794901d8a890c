package validate

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// WholePod is what must be true of a pod after every write of its spec.
func WholePod(p *corev1.Pod) field.ErrorList {
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

// podScope is what the parts of a pod may refer to. meta is nil in a template: its pods have no names yet, and a few
// rules, which came later than templates that break them, are for pods alone.
type podScope struct {
	spec    *corev1.PodSpec
	meta    *metav1.ObjectMeta
	volumes map[string]*corev1.VolumeSource // the sound ones
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

// podNames checks the names of other things that a pod mentions, and the names that it gives itself.
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
		for j, hostname := range alias.Hostnames {
			errs = append(errs, DnsSubdomain(hostname, at.Child("hostnames").Index(j))...)
		}
	}
	return errs
}

// maxHostname is what Linux takes.
const maxHostname = 64

func hostnameOverride(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	if s.HostnameOverride == nil {
		return nil
	}
	var errs field.ErrorList
	if Frozen(s.SetHostnameAsFQDN) {
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
