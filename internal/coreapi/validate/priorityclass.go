package validate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	systemPrefix = "system-"
	// highestUserPriority is below all that the system gives its own pods, so that nobody's workload evicts them.
	highestUserPriority = 1000000000
)

// SystemPriorities are the priority classes that every cluster has, and what they are worth.
func SystemPriorities() map[string]int32 {
	return map[string]int32{
		"system-cluster-critical": 2 * highestUserPriority,
		"system-node-critical":    2*highestUserPriority + 1000,
	}
}

func ValidatePriorityClass(c *schedulingv1.PriorityClass) field.ErrorList {
	errs := objectMeta(&c.ObjectMeta, clusterScoped, validation.NameIsDNSSubdomain)
	if strings.HasPrefix(c.Name, systemPrefix) {
		if why := unlikeSystem(c); why != "" {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"), "priority class names with '"+systemPrefix+
				"' prefix are reserved for system use only. error: "+why))
		}
	} else if c.Value > highestUserPriority {
		errs = append(errs, field.Forbidden(field.NewPath("value"),
			fmt.Sprintf("maximum allowed value of a user defined priority is %v", highestUserPriority)))
	}
	if c.PreemptionPolicy != nil {
		errs = append(errs, required(*c.PreemptionPolicy, field.NewPath("preemptionPolicy"), corev1.PreemptNever,
			corev1.PreemptLowerPriority)...)
	}
	return errs
}

// unlikeSystem says what keeps a class from being the system's own of that name.
func unlikeSystem(c *schedulingv1.PriorityClass) string {
	value, known := SystemPriorities()[c.Name]
	switch {
	case !known:
		return c.Name + " is not a known system priority class"
	case c.Value != value:
		return fmt.Sprintf("value of %v PriorityClass must be %v", c.Name, value)
	case c.GlobalDefault:
		return fmt.Sprintf("globalDefault of %v PriorityClass must be false", c.Name)
	}
	return ""
}

func ValidatePriorityClassUpdate(c, old *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if c.Value != old.Value {
		errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
	}
	return append(errs, immutable(c.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
}

func ValidateRuntimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	errs := plainMeta(&c.ObjectMeta, clusterScoped, validation.NameIsDNSSubdomain)
	if c.Handler == "" {
		errs = append(errs, field.Required(field.NewPath("handler"), ""))
	} else {
		errs = append(errs, dnsLabel(c.Handler, field.NewPath("handler"))...)
	}
	if c.Overhead != nil {
		errs = append(errs, overhead(c.Overhead.PodFixed, field.NewPath("overhead", "limits"))...)
	}
	if c.Scheduling == nil {
		return errs
	}
	path := field.NewPath("scheduling")
	errs = append(errs, metav1validation.ValidateLabels(c.Scheduling.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, tolerations(c.Scheduling.Tolerations, path.Child("tolerations"))...)
	seen := sets.New[corev1.Toleration]()
	for i, t := range c.Scheduling.Tolerations {
		key := corev1.Toleration{Key: t.Key, Operator: t.Operator, Value: t.Value, Effect: t.Effect}
		if seen.Has(key) {
			errs = append(errs, field.Duplicate(path.Child("tolerations").Index(i), t))
		}
		seen.Insert(key)
	}
	return errs
}

// overhead is checked as the limits of a container: kube-apiserver reports it under that name too.
func overhead(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at, quantity := path.Key(string(name)), list[name]
		errs = append(errs, limitedResource(corev1.LimitTypeContainer, name, at)...)
		errs = append(errs, resourceQuantity(name, quantity, at)...)
	}
	return errs
}

func ValidateRuntimeClassUpdate(c, old *nodev1.RuntimeClass) field.ErrorList {
	return append(ValidateRuntimeClass(c), immutable(c.Handler, old.Handler, field.NewPath("handler"))...)
}

// oldNodeLabels are labels of nodes that have other names now, and what is said to whoever still selects by them.
var oldNodeLabels = map[string]string{
	"beta.kubernetes.io/arch":                       `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                         `deprecated since v1.14; use "kubernetes.io/os" instead`,
	corev1.LabelFailureDomainBetaRegion:             `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	corev1.LabelFailureDomainBetaZone:               `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	corev1.LabelInstanceType:                        `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"app.kubernetes.io/created-by":                  `deprecated since v1.9`,
	"scheduler.alpha.kubernetes.io/preferAvoidPods": `deprecated since v1.22; use Taints and Tolerations instead`,
	"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
}

func RuntimeClassWarnings(c *nodev1.RuntimeClass) []string {
	if c.Scheduling == nil {
		return nil
	}
	var warnings []string
	for _, key := range slices.Sorted(maps.Keys(c.Scheduling.NodeSelector)) {
		if message, old := oldNodeLabels[key]; old {
			warnings = append(warnings, "scheduling.nodeSelector: "+message)
		}
	}
	return warnings
}
