package validate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func ValidateResourceQuota(q *corev1.ResourceQuota) field.ErrorList {
	errs := objectMeta(&q.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	return append(errs, quotaSpec(&q.Spec)...)
}

// ValidateResourceQuotaUpdate keeps the scopes: what a quota has counted would not be what it is about.
func ValidateResourceQuotaUpdate(q, old *corev1.ResourceQuota) field.ErrorList {
	errs := quotaSpec(&q.Spec)
	if !sets.New(q.Spec.Scopes...).Equal(sets.New(old.Spec.Scopes...)) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "scopes"), q.Spec.Scopes, validation.FieldImmutableErrorMsg))
	}
	return errs
}

func ValidateResourceQuotaStatus(q, _ *corev1.ResourceQuota) field.ErrorList {
	errs := quotaResources(q.Status.Hard, field.NewPath("status", "hard"))
	return append(errs, quotaResources(q.Status.Used, field.NewPath("status", "used"))...)
}

func quotaSpec(s *corev1.ResourceQuotaSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := quotaResources(s.Hard, path.Child("hard"))
	if len(s.Scopes) > 0 {
		errs = append(errs, quotaScopes(s, path.Child("scopes"))...)
	}
	if s.ScopeSelector != nil {
		errs = append(errs, scopeSelector(s, path.Child("scopeSelector", "matchExpressions"))...)
	}
	return errs
}

func quotaResources(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at, quantity := path.Key(string(name)), list[name]
		errs = append(errs, knownResource(name, at)...)
		if !strings.Contains(string(name), "/") && !countedByQuota(name) {
			errs = append(errs, field.Invalid(at, name, "must be a standard resource for quota"))
		}
		errs = append(errs, notNegative(quantity, at)...)
		if whole(name) && quantity.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(at, quantity.String(), "must be an integer"))
		}
	}
	return errs
}

// quotaCounts are the kinds that quotas counted before count/<resource>.<group>; there are no halves of them.
var quotaCounts = sets.New(corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices,
	corev1.ResourceReplicationControllers, corev1.ResourceSecrets, corev1.ResourceConfigMaps,
	corev1.ResourcePersistentVolumeClaims, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers)

var quotaAmounts = sets.New(corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceRequestsStorage, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage)

func countedByQuota(name corev1.ResourceName) bool {
	return quotaCounts.Has(name) || quotaAmounts.Has(name) || hugePages(name)
}

func hugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// knownResource refuses a name without a domain that nobody counts or limits.
func knownResource(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if errs := qualified(string(name), path); len(errs) > 0 {
		return errs
	}
	if strings.Contains(string(name), "/") || countedByQuota(name) || name == corev1.ResourceStorage {
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, "must be a standard resource type or fully qualified")}
}

// whole resources come in pieces: counted objects, and extended resources such as devices.
func whole(name corev1.ResourceName) bool {
	return quotaCounts.Has(name) || !native(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
}

var podScopes = sets.New(corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating,
	corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity)

// inScope reports whether a scope has any such resources to count.
func inScope(scope corev1.ResourceQuotaScope, name corev1.ResourceName) bool {
	switch {
	case podScopes.Has(scope):
		return name == corev1.ResourcePods || name == corev1.ResourceCPU || name == corev1.ResourceMemory ||
			name == corev1.ResourceRequestsCPU || name == corev1.ResourceRequestsMemory ||
			name == corev1.ResourceLimitsCPU || name == corev1.ResourceLimitsMemory
	case scope == corev1.ResourceQuotaScopeBestEffort:
		return name == corev1.ResourcePods
	case scope == corev1.ResourceQuotaScopeVolumeAttributesClass:
		return name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceRequestsStorage
	}
	return true
}

func knownScope(scope corev1.ResourceQuotaScope) bool {
	return podScopes.Has(scope) || scope == corev1.ResourceQuotaScopeBestEffort || scope == corev1.ResourceQuotaScopeVolumeAttributesClass
}

func quotaScopes(s *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, scope := range s.Scopes {
		if !knownScope(scope) {
			errs = append(errs, field.Invalid(path, s.Scopes, "unsupported scope"))
		}
		errs = append(errs, outOfScope(s, scope, path, s.Scopes)...)
	}
	return append(errs, conflictingScopes(sets.New(s.Scopes...), path, s.Scopes)...)
}

func outOfScope(s *corev1.ResourceQuotaSpec, scope corev1.ResourceQuotaScope, path *field.Path, value any) field.ErrorList {
	var errs field.ErrorList
	for name := range s.Hard {
		if countedByQuota(name) && !inScope(scope, name) {
			errs = append(errs, field.Invalid(path, value, "unsupported scope applied to resource"))
		}
	}
	return errs
}

func conflictingScopes(scopes sets.Set[corev1.ResourceQuotaScope], path *field.Path, value any) field.ErrorList {
	var errs field.ErrorList
	if scopes.HasAll(corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort) {
		errs = append(errs, field.Invalid(path, value, "conflicting scopes"))
	}
	if scopes.HasAll(corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating) {
		errs = append(errs, field.Invalid(path, value, "conflicting scopes"))
	}
	return errs
}

func scopeSelector(s *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	scopes := sets.New[corev1.ResourceQuotaScope]()
	for _, r := range s.ScopeSelector.MatchExpressions {
		errs = append(errs, ScopeRequirement(&r, path)...)
		errs = append(errs, outOfScope(s, r.ScopeName, path, s.ScopeSelector)...)
		scopes.Insert(r.ScopeName)
	}
	return append(errs, conflictingScopes(scopes, path, s.Scopes)...)
}

// ScopeRequirement is what is wrong with one expression about scopes.
func ScopeRequirement(r *corev1.ScopedResourceSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !knownScope(r.ScopeName) {
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

// ResourceQuotaWarnings say when a quota grants more requests than limits, which can never be used.
func ResourceQuotaWarnings(q *corev1.ResourceQuota) []string {
	var warnings []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		requests, limits := "requests."+name, "limits."+name
		asked, ok := q.Spec.Hard[requests]
		if !ok && name != corev1.ResourceEphemeralStorage {
			requests = name
			asked, ok = q.Spec.Hard[requests]
		}
		limit, limited := q.Spec.Hard[limits]
		if ok && limited && asked.Cmp(limit) > 0 {
			warnings = append(warnings, fmt.Sprintf("ResourceQuota %s (%s) should be less than %s (%s)", requests, asked.String(), limits, limit.String()))
		}
	}
	return warnings
}
