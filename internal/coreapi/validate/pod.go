package validate

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// pod checks what the front door, its readers and any scheduler need to be sound of a pod. What only a kubelet acts on
// (security contexts, affinity, the inside of storage drivers) is not read.
func pod(p *corev1.Pod) field.ErrorList {
	errs := objectMeta(&p.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	errs = append(errs, podSpec(&p.Spec, spec)...)
	if len(p.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "cannot be set on create"))
	}
	return errs
}

func podSpec(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	mountable, errs := volumes(s.Volumes, path.Child("volumes"))
	errs = append(errs, containers(s, mountable, path)...)
	errs = append(errs, required(s.RestartPolicy, path.Child("restartPolicy"), corev1.RestartPolicyAlways,
		corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, required(s.DNSPolicy, path.Child("dnsPolicy"), corev1.DNSClusterFirstWithHostNet,
		corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)...)
	errs = append(errs, podSeconds(s, path)...)
	errs = append(errs, podNames(s, path)...)
	errs = append(errs, metav1validation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, tolerations(s.Tolerations, path.Child("tolerations"))...)
	return append(errs, schedulingGates(s.SchedulingGates, path.Child("schedulingGates"))...)
}

func podSeconds(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if grace := path.Child("terminationGracePeriodSeconds"); s.TerminationGracePeriodSeconds == nil {
		errs = append(errs, field.Required(grace, ""))
	}
	if d := s.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > math.MaxInt32) {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *d,
			utilvalidation.InclusiveRangeError(1, math.MaxInt32)))
	}
	return errs
}

// podNames checks the names of other things that a pod mentions.
func podNames(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	named := func(value, name string, messages func(string) []string) {
		if value != "" {
			errs = append(errs, invalid(path.Child(name), value, messages(value))...)
		}
	}
	subdomain := func(v string) []string { return validation.NameIsDNSSubdomain(v, false) }
	named(s.NodeName, "nodeName", subdomain)
	named(s.ServiceAccountName, "serviceAccountName", subdomain)
	named(s.PriorityClassName, "priorityClassName", subdomain)
	named(s.SchedulerName, "schedulerName", utilvalidation.IsQualifiedName)
	named(s.Hostname, "hostname", utilvalidation.IsDNS1123Label)
	named(s.Subdomain, "subdomain", utilvalidation.IsDNS1123Label)
	if s.RuntimeClassName != nil {
		errs = append(errs, invalid(path.Child("runtimeClassName"), *s.RuntimeClassName, subdomain(*s.RuntimeClassName))...)
	}
	for i, alias := range s.HostAliases {
		at := path.Child("hostAliases").Index(i)
		errs = append(errs, utilvalidation.IsValidIPForLegacyField(at.Child("ip"), alias.IP, true, nil)...)
		for j, hostname := range alias.Hostnames {
			errs = append(errs, dnsSubdomain(hostname, at.Child("hostnames").Index(j))...)
		}
	}
	return errs
}

func tolerations(list []corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range list {
		at := path.Index(i)
		if t.Key != "" {
			errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		} else if t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect,
				"effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			errs = append(errs, invalid(at.Child("value"), t.Value, utilvalidation.IsValidLabelValue(t.Value))...)
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at.Child("operator"), t.Value,
					"value must be empty when `operator` is 'Exists'"))
			}
		case corev1.TolerationOpGt, corev1.TolerationOpLt:
			errs = append(errs, invalid(at.Child("value"), t.Value, content.IsDecimalInteger(t.Value))...)
		default:
			errs = append(errs, oneOf(t.Operator, at.Child("operator"), corev1.TolerationOpEqual,
				corev1.TolerationOpExists, corev1.TolerationOpGt, corev1.TolerationOpLt)...)
		}
		if t.Effect != "" {
			errs = append(errs, oneOf(t.Effect, at.Child("effect"), corev1.TaintEffectNoSchedule,
				corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		}
	}
	return errs
}

func schedulingGates(gates []corev1.PodSchedulingGate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, gate := range gates {
		errs = append(errs, qualified(gate.Name, path.Index(i))...)
		if seen.Has(gate.Name) {
			errs = append(errs, field.Duplicate(path.Index(i), gate.Name))
		}
		seen.Insert(gate.Name)
	}
	return errs
}
