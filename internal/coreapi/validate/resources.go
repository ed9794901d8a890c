package validate

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	helper "k8s.io/component-helpers/resource"
)

// containerResources refuses requests above the limits, and fractions of indivisible resources.
func containerResources(r *corev1.ResourceRequirements, claims sets.Set[string], path *field.Path) field.ErrorList {
	return append(requirements(r, ContainerResourceName, path), claimNames(r.Claims, claims, path.Child("claims"))...)
}

func requirements(r *corev1.ResourceRequirements, named func(corev1.ResourceName, *field.Path) field.ErrorList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	limits, requests := path.Child("limits"), path.Child("requests")
	huge, computes := false, false
	amount := func(name corev1.ResourceName, quantity resource.Quantity, at *field.Path) {
		errs = append(errs, named(name, at)...)
		errs = append(errs, NotNegative(quantity, at)...)
		if IntegerResource(name) && quantity.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(at, quantity.String(), "must be an integer"))
		}
		if memoryPages(name) {
			huge = true
			if !inPages(name, quantity) {
				errs = append(errs, field.Invalid(at, quantity.String(), fmt.Sprintf("%s is not positive integer multiple of %s", quantity.String(), name)))
			}
		}
		computes = computes || name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	for name, quantity := range r.Limits {
		amount(name, quantity, limits.Key(string(name)))
	}
	for name, quantity := range r.Requests {
		amount(name, quantity, requests.Key(string(name)))
		shared := NativeResource(name) && !memoryPages(name)
		limit, limited := r.Limits[name]
		switch {
		case !limited && !shared:
			errs = append(errs, field.Required(limits, "Limit must be set for non overcommitable resources"))
		case limited && !shared && quantity.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(requests, quantity.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && quantity.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(requests, quantity.String(),
				fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		}
	}
	if huge && !computes {
		errs = append(errs, field.Forbidden(path, "HugePages require cpu or memory"))
	}
	return errs
}

func memoryPages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// inPages reports whether an amount of huge pages is a multiple of the page size in the name.
func inPages(name corev1.ResourceName, q resource.Quantity) bool {
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	return err == nil && size.Sign() > 0 && size.MilliValue()%1000 == 0 && q.Value()%size.Value() == 0
}

func ContainerResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := KnownResource(name, path)
	switch {
	case !strings.Contains(string(name), "/"):
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage && !memoryPages(name) {
			errs = append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
		}
	case !NativeResource(name):
		quota := corev1.DefaultResourceRequestsPrefix + string(name)
		if strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) || len(Qualified(quota, path)) > 0 {
			errs = append(errs, field.Invalid(path, name, "doesn't follow extended resource name standard"))
		}
	}
	return errs
}

// podResources checks pod-level resources (KEP-2837), also against the sums of the containers.
func podResources(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	own := s.Resources
	switch {
	case own == nil:
		return nil
	case s.OS != nil && s.OS.Name == corev1.Windows:
		return field.ErrorList{field.Forbidden(path, "may not be set for a windows pod")}
	}
	var errs field.ErrorList
	if own.Claims != nil {
		errs = append(errs, field.Forbidden(path.Child("claims"), "claims may not be set for Resources at pod-level"))
	}
	errs = append(errs, requirements(own, podResourceName, path)...)
	pod := &corev1.Pod{Spec: *s}
	for name, sum := range helper.AggregateContainerRequests(pod, helper.PodResourcesOptions{}) {
		if request, said := own.Requests[name]; said && sum.Cmp(request) > 0 {
			errs = append(errs, field.Invalid(path.Child("requests").Key(string(name)), request.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", sum.String())))
		}
	}
	for name, sum := range helper.AggregateContainerLimits(pod, helper.PodResourcesOptions{}) {
		if limit, said := own.Limits[name]; said && memoryPages(name) && sum.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(path.Child("limits").Key(string(name)), limit.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container limits of %s", sum.String())))
		}
	}
	for i, c := range s.Containers {
		for name, limit := range c.Resources.Limits {
			if most, said := own.Limits[name]; said && limit.Cmp(most) > 0 {
				errs = append(errs, field.Invalid(path.Child("containers").Index(i).Key(string(name)).Child("limits"), limit.String(),
					fmt.Sprintf("must be less than or equal to pod limits of %s", most.String())))
			}
		}
	}
	return errs
}

func podResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if errs := KnownResource(name, path); len(errs) > 0 {
		return errs
	}
	if helper.IsSupportedPodLevelResource(name) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, name, sets.List(helper.SupportedPodLevelResources()))}
}

// resourceClaims checks claims on devices. Containers refer to them by their names in the pod spec.
func (p *podScope) resourceClaims(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, claim := range p.spec.ResourceClaims {
		at := path.Index(i)
		switch {
		case p.meta != nil && p.meta.Annotations[corev1.MirrorPodAnnotationKey] != "":
			return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support resource claims")}
		case claim.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case p.claims.Has(claim.Name):
			errs = append(errs, field.Duplicate(at.Child("name"), claim.Name))
		default:
			errs = append(errs, DnsLabel(claim.Name, at.Child("name"))...)
			p.claims.Insert(claim.Name)
		}
		named, made := claim.ResourceClaimName, claim.ResourceClaimTemplateName
		switch {
		case named != nil && made != nil:
			errs = append(errs, field.Invalid(at, claim, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		case named == nil && made == nil:
			errs = append(errs, field.Invalid(at, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		}
		if named != nil {
			errs = append(errs, DnsSubdomain(*named, at.Child("resourceClaimName"))...)
		}
		if made != nil {
			errs = append(errs, DnsSubdomain(*made, at.Child("resourceClaimTemplateName"))...)
		}
	}
	return errs
}

func claimNames(claims []corev1.ResourceClaim, known sets.Set[string], path *field.Path) field.ErrorList {
	var errs field.ErrorList
	whole, parts := sets.New[string](), sets.New[string]() // complete claims, and single requests of claims
	for i, claim := range claims {
		at, key := path.Index(i), claim.Name+"/"+claim.Request
		if claim.Name == "" {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		if claim.Request != "" {
			errs = append(errs, DnsLabel(claim.Request, at.Child("request"))...)
		}
		switch {
		case whole.Has(claim.Name), claim.Request == "" && parts.Has(claim.Name):
			errs = append(errs, field.Duplicate(at, claim.Name))
		case parts.Has(key):
			errs = append(errs, field.Duplicate(at, key))
		}
		if claim.Request == "" {
			whole.Insert(claim.Name)
		} else {
			parts.Insert(claim.Name, key)
		}
		if !known.Has(claim.Name) {
			missing := field.NotFound(at, claim.Name)
			missing.Detail = "must be one of the names in pod.spec.resourceClaims which is empty"
			if len(known) > 0 {
				missing.Detail = "must be one of the names in pod.spec.resourceClaims: " + strings.Join(sets.List(known), ", ")
			}
			errs = append(errs, missing)
		}
	}
	return errs
}

// ResourceQuantity refuses negative quantities, and fractions of extended resources such as devices.
func ResourceQuantity(name corev1.ResourceName, q resource.Quantity, path *field.Path) field.ErrorList {
	errs := Qualified(string(name), path)
	if q.Sign() < 0 {
		errs = append(errs, field.Invalid(path, q.String(), validation.IsNegativeErrorMsg))
	}
	extended := strings.Contains(string(name), "/") && !strings.Contains(string(name), "kubernetes.io/")
	if extended && q.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(path, q.String(), "must be an integer"))
	}
	return errs
}

// quotaCounts contains the kinds that quotas counted before count/<resource>.<group>. Their quantities are integers.
var quotaCounts = sets.New(corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices,
	corev1.ResourceReplicationControllers, corev1.ResourceSecrets, corev1.ResourceConfigMaps,
	corev1.ResourcePersistentVolumeClaims, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers)

var quotaAmounts = sets.New(corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceRequestsStorage, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage)

func CountedByQuota(name corev1.ResourceName) bool {
	return quotaCounts.Has(name) || quotaAmounts.Has(name) || hugePages(name)
}

func hugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// KnownResource refuses a name without a domain that is not a standard resource.
func KnownResource(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if errs := Qualified(string(name), path); len(errs) > 0 {
		return errs
	}
	if strings.Contains(string(name), "/") || CountedByQuota(name) || name == corev1.ResourceStorage {
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, "must be a standard resource type or fully qualified")}
}

// IntegerResource reports whether quantities of a resource are integers: counted objects, and extended resources such as
// devices.
func IntegerResource(name corev1.ResourceName) bool {
	return quotaCounts.Has(name) || !NativeResource(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
}

var PodScopes = sets.New(corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating,
	corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity)

func KnownScope(scope corev1.ResourceQuotaScope) bool {
	return PodScopes.Has(scope) || scope == corev1.ResourceQuotaScopeBestEffort || scope == corev1.ResourceQuotaScopeVolumeAttributesClass
}

// ScopeRequirement checks an expression about scopes.
func ScopeRequirement(r *corev1.ScopedResourceSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !KnownScope(r.ScopeName) {
		errs = append(errs, field.Invalid(path.Child("scopeName"), r.ScopeName, "unsupported scope"))
	}
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopeTerminating,
		corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		if r.Operator != corev1.ScopeSelectorOpExists {
			errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "must be 'Exists' when scope is any of "+
				"ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "+
				"ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"))
		}
	}
	switch r.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(path.Child("values"),
				"must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
		}
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Invalid(path.Child("values"), r.Values,
				"must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	return errs
}

func LimitedResource(kind corev1.LimitType, name corev1.ResourceName, path *field.Path) field.ErrorList {
	if kind != corev1.LimitTypePod && kind != corev1.LimitTypeContainer {
		return KnownResource(name, path)
	}
	errs := KnownResource(name, path)
	switch {
	case strings.Contains(string(name), "/"):
		if !NativeResource(name) && strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) {
			return append(errs, field.Invalid(path, name, "doesn't follow extended resource name standard"))
		}
	case name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage &&
		!strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
	}
	return errs
}
