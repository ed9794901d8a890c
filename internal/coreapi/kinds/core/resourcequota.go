package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func resourceQuotaResource() registry.Resource {
	return registry.Resource{
		Name: "resourcequotas", Singular: "resourcequota", ShortNames: []string{"quota"},
		Object: &corev1.ResourceQuota{}, List: &corev1.ResourceQuotaList{}, ReturnDeletedObject: true, AllowUnconditionalUpdate: true,
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {hard: {count/nothings.example.com: '5'}}",
			"metadata: {name: c, namespace: ns}\n" +
				"spec: {hard: {pods: '10', requests.cpu: '4', count/deployments.apps: '2', requests.example.com/gpu: '1', services.loadbalancers: '0'}}",
			"metadata: {name: b, namespace: ns}\n" +
				"spec: {hard: {pods: '10'}, scopes: [BestEffort], scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high]}]}}",
		},
		Rules:    validate.WithStatus(validateResourceQuota, validateResourceQuotaUpdate, validateResourceQuotaStatus).CheckFinalizers(),
		Defaults: defaults.Of(defaultResourceQuota),
		Warnings: validate.Warn(resourceQuotaWarnings),
		Columns:  resourceQuotaColumns,
		Spec:     registry.SpecOf(func(q *corev1.ResourceQuota) *corev1.ResourceQuotaSpec { return &q.Spec }),
		Status:   registry.StatusOf(func(q *corev1.ResourceQuota) *corev1.ResourceQuotaStatus { return &q.Status }), StatusChangesMetadata: true,
	}
}

func resourceQuotaColumns() columns.Printer {
	return columns.Show(func(q *corev1.ResourceQuota, now time.Time) []any {
		var requests, limits []string
		for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
			used, hard := q.Status.Used[name], q.Status.Hard[name]
			shown := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
			if strings.HasPrefix(string(name), "limits.") {
				limits = append(limits, shown)
			} else {
				requests = append(requests, shown)
			}
		}
		return []any{q.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), columns.AgeOf(q, now)}
	}, columns.Name(), columns.Text("Request", "What is used of what may be requested, and how many objects there are"),
		columns.Text("Limit", "What is used of what containers may be limited to"), columns.Age())
}

func defaultResourceQuota(q *corev1.ResourceQuota) {
	defaults.Milli(q.Spec.Hard)
	defaults.Milli(q.Status.Hard)
	defaults.Milli(q.Status.Used)
}

func validateResourceQuota(q *corev1.ResourceQuota) field.ErrorList {
	errs := validate.ObjectMeta(&q.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	return append(errs, quotaSpec(&q.Spec)...)
}

// validateResourceQuotaUpdate makes the scopes immutable, because the usage was counted for them.
func validateResourceQuotaUpdate(q, old *corev1.ResourceQuota) field.ErrorList {
	errs := quotaSpec(&q.Spec)
	if !sets.New(q.Spec.Scopes...).Equal(sets.New(old.Spec.Scopes...)) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "scopes"), q.Spec.Scopes, validation.FieldImmutableErrorMsg))
	}
	return errs
}

func validateResourceQuotaStatus(q, _ *corev1.ResourceQuota) field.ErrorList {
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
		errs = append(errs, validate.KnownResource(name, at)...)
		if !strings.Contains(string(name), "/") && !validate.CountedByQuota(name) {
			errs = append(errs, field.Invalid(at, name, "must be a standard resource for quota"))
		}
		errs = append(errs, validate.NotNegative(quantity, at)...)
		if validate.IntegerResource(name) && quantity.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(at, quantity.String(), "must be an integer"))
		}
	}
	return errs
}

// inScope reports whether a quota with the scope can count the resource.
func inScope(scope corev1.ResourceQuotaScope, name corev1.ResourceName) bool {
	switch {
	case validate.PodScopes.Has(scope):
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

func quotaScopes(s *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, scope := range s.Scopes {
		if !validate.KnownScope(scope) {
			errs = append(errs, field.Invalid(path, s.Scopes, "unsupported scope"))
		}
		errs = append(errs, outOfScope(s, scope, path, s.Scopes)...)
	}
	return append(errs, conflictingScopes(sets.New(s.Scopes...), path, s.Scopes)...)
}

func outOfScope(s *corev1.ResourceQuotaSpec, scope corev1.ResourceQuotaScope, path *field.Path, value any) field.ErrorList {
	var errs field.ErrorList
	for name := range s.Hard {
		if validate.CountedByQuota(name) && !inScope(scope, name) {
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
		errs = append(errs, validate.ScopeRequirement(&r, path)...)
		errs = append(errs, outOfScope(s, r.ScopeName, path, s.ScopeSelector)...)
		scopes.Insert(r.ScopeName)
	}
	return append(errs, conflictingScopes(scopes, path, s.Scopes)...)
}

// resourceQuotaWarnings warns about a quota with more requests than limits, because the difference can never be used.
func resourceQuotaWarnings(q *corev1.ResourceQuota) []string {
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
