package validate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func ValidateNode(n *corev1.Node) field.ErrorList {
	errs := objectMeta(&n.ObjectMeta, clusterScoped, validation.NameIsDNSSubdomain)
	errs = append(errs, taints(n.Spec.Taints)...)
	errs = append(errs, nodeResources(n)...)
	return append(errs, podCIDRs(n.Spec.PodCIDRs)...)
}

// ValidateNodeUpdate lets its pod CIDR and its provider's id be given once.
func ValidateNodeUpdate(n, old *corev1.Node) field.ErrorList {
	errs := append(taints(n.Spec.Taints), ValidateNodeStatus(n, old)...)
	spec := field.NewPath("spec")
	const once = `node updates may not change podCIDR except from "" to valid`
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(n.Spec.PodCIDRs, old.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(spec.Child("podCIDRs"), once))
	} else if len(old.Spec.PodCIDRs) == 0 {
		errs = append(errs, podCIDRs(n.Spec.PodCIDRs)...)
	}
	switch {
	case old.Spec.ProviderID == "" || old.Spec.ProviderID == n.Spec.ProviderID:
	case n.Spec.ProviderID == "":
		errs = append(errs, field.Invalid(spec.Child("providerID"), nil, "field cannot be cleared once set"))
	default:
		errs = append(errs, field.Invalid(spec.Child("providerID"), nil, "field cannot be modified once set"))
	}
	if n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		errs = append(errs, field.Forbidden(spec.Child("externalID"), "may not be updated"))
	}
	return errs
}

func ValidateNodeStatus(n, _ *corev1.Node) field.ErrorList {
	errs := nodeResources(n)
	seen := sets.New[corev1.NodeAddress]()
	for i, address := range n.Status.Addresses {
		if seen.Has(address) {
			errs = append(errs, field.Duplicate(field.NewPath("status", "addresses").Index(i), address))
		}
		seen.Insert(address)
	}
	return errs
}

func nodeResources(n *corev1.Node) field.ErrorList {
	status := field.NewPath("status")
	var errs field.ErrorList
	for name, quantity := range n.Status.Capacity {
		errs = append(errs, resourceQuantity(name, quantity, status.Child("capacity", string(name)))...)
	}
	for name, quantity := range n.Status.Allocatable {
		errs = append(errs, resourceQuantity(name, quantity, status.Child("allocatable", string(name)))...)
	}
	return errs
}

// resourceQuantity allows no debts, and no halves of what comes in pieces: extended resources such as devices.
func resourceQuantity(name corev1.ResourceName, q resource.Quantity, path *field.Path) field.ErrorList {
	errs := qualified(string(name), path)
	if q.Sign() < 0 {
		errs = append(errs, field.Invalid(path, q.String(), validation.IsNegativeErrorMsg))
	}
	extended := strings.Contains(string(name), "/") && !strings.Contains(string(name), "kubernetes.io/")
	if extended && q.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(path, q.String(), "must be an integer"))
	}
	return errs
}

func podCIDRs(cidrs []string) field.ErrorList {
	path := field.NewPath("spec", "podCIDRs")
	var errs field.ErrorList
	for i, cidr := range cidrs {
		errs = append(errs, utilvalidation.IsValidCIDRForLegacyField(path.Index(i), cidr, true, nil)...)
	}
	if len(cidrs) > 2 || len(cidrs) == 2 && strings.Contains(cidrs[0], ":") == strings.Contains(cidrs[1], ":") {
		errs = append(errs, field.Invalid(path, cidrs, "may specify no more than one CIDR for each IP family"))
	}
	return errs
}

// taints are reported below metadata, where kube-apiserver reports them although they are in the spec.
func taints(list []corev1.Taint) field.ErrorList {
	type key struct {
		key    string
		effect corev1.TaintEffect
	}
	var errs field.ErrorList
	seen := sets.New[key]()
	for i, taint := range list {
		path := field.NewPath("metadata", "taints").Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(taint.Key, path.Child("key"))...)
		errs = append(errs, invalid(path.Child("value"), taint.Value, utilvalidation.IsValidLabelValue(taint.Value))...)
		errs = append(errs, required(taint.Effect, path.Child("effect"), corev1.TaintEffectNoSchedule,
			corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		if k := (key{taint.Key, taint.Effect}); seen.Has(k) {
			duplicate := field.Duplicate(path, taint)
			duplicate.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, duplicate)
		} else {
			seen.Insert(k)
		}
	}
	return errs
}
