package quota

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// lister lists the objects of one kind in a namespace.
type lister = generic.ListFuncByNamespace

// evaluator measures the usage of a kind with more than an object count.
type evaluator struct {
	resource schema.GroupResource
	// charges reports whether a request may increase the usage.
	charges func(admission.Attributes) bool
	// names reports whether a resource name of a quota belongs to this kind.
	names func(corev1.ResourceName) bool
	usage func(runtime.Object) (corev1.ResourceList, error)
	// inScope reports whether an object is in a scope. If it is nil, the kind has no scopes, and quotas with scopes do not
	// count it.
	inScope func(corev1.ScopedResourceSelectorRequirement, runtime.Object) (bool, error)
	// requires checks the fields that an object must specify if a quota limits them. May be nil.
	requires func(required []corev1.ResourceName, obj runtime.Object) error
	list     lister // nil in admission
}

var _ quota.Evaluator = (*evaluator)(nil)

func (e *evaluator) GroupResource() schema.GroupResource                   { return e.resource }
func (e *evaluator) Handles(a admission.Attributes) bool                   { return e.charges(a) }
func (e *evaluator) Usage(obj runtime.Object) (corev1.ResourceList, error) { return e.usage(obj) }

func (e *evaluator) Constraints(required []corev1.ResourceName, obj runtime.Object) error {
	if e.requires == nil {
		return nil
	}
	return e.requires(required, obj)
}

func (e *evaluator) MatchingResources(names []corev1.ResourceName) []corev1.ResourceName {
	var ours []corev1.ResourceName
	for _, name := range names {
		if e.names(name) {
			ours = append(ours, name)
		}
	}
	return ours
}

func (e *evaluator) scope(s corev1.ScopedResourceSelectorRequirement, obj runtime.Object) (bool, error) {
	if e.inScope == nil {
		return false, nil
	}
	return e.inScope(s, obj)
}

func (e *evaluator) Matches(q *corev1.ResourceQuota, obj runtime.Object) (bool, error) {
	return generic.Matches(q, obj, e.MatchingResources, e.scope)
}

func (e *evaluator) MatchingScopes(obj runtime.Object, scopes []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	var in []corev1.ScopedResourceSelectorRequirement
	for _, s := range scopes {
		is, err := e.scope(s, obj)
		if err != nil {
			return nil, fmt.Errorf("scope %s: %w", s.ScopeName, err)
		}
		if is {
			in = append(in, s)
		}
	}
	return in, nil
}

func (e *evaluator) UncoveredQuotaScopes(limited, covered []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	var uncovered []corev1.ScopedResourceSelectorRequirement
	for _, s := range limited {
		if !slices.ContainsFunc(covered, func(c corev1.ScopedResourceSelectorRequirement) bool { return c.ScopeName == s.ScopeName }) {
			uncovered = append(uncovered, s)
		}
	}
	return uncovered, nil
}

func (e *evaluator) UsageStats(o quota.UsageStatsOptions) (quota.UsageStats, error) {
	return generic.CalculateUsageStats(o, e.list, e.scope, e.usage)
}

// matchesSelector reports whether a selector matches the values that an object has for a scope, if any.
func matchesSelector(s corev1.ScopedResourceSelectorRequirement, values ...string) (bool, error) {
	operators := map[corev1.ScopeSelectorOperator]selection.Operator{
		corev1.ScopeSelectorOpIn: selection.In, corev1.ScopeSelectorOpNotIn: selection.NotIn,
		corev1.ScopeSelectorOpExists: selection.Exists, corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	operator, ok := operators[s.Operator]
	if !ok {
		return false, fmt.Errorf("%q is not a valid scope selector operator", s.Operator)
	}
	requirement, err := labels.NewRequirement(string(s.ScopeName), operator, s.Values)
	if err != nil {
		return false, fmt.Errorf("scope selector: %w", err)
	}
	if len(values) == 0 {
		return requirement.Matches(labels.Set{}), nil
	}
	return slices.ContainsFunc(values, func(v string) bool {
		return requirement.Matches(labels.Set{string(s.ScopeName): v})
	}), nil
}

func one() resource.Quantity { return *resource.NewQuantity(1, resource.DecimalSI) }

func quantity(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

func unexpectedType(want string, obj runtime.Object) error {
	return fmt.Errorf("expected a %s, got %T", want, obj)
}

// legacyNames are the resource names of kinds that quotas could count before "count/" supported every kind.
var legacyNames = map[schema.GroupResource]corev1.ResourceName{
	corev1.Resource("configmaps"):             corev1.ResourceConfigMaps,
	corev1.Resource("resourcequotas"):         corev1.ResourceQuotas,
	corev1.Resource("replicationcontrollers"): corev1.ResourceReplicationControllers,
	corev1.Resource("secrets"):                corev1.ResourceSecrets,
}

// uncounted reports whether quotas do not count a resource: resources that are not stored, and events, which expire and are
// often written by components outside the namespace.
func uncounted(r schema.GroupResource) bool {
	switch r.Group {
	case "":
		return r.Resource == "bindings" || r.Resource == "componentstatuses" || r.Resource == "events"
	case eventsv1.GroupName:
		return r.Resource == "events"
	case "authentication.k8s.io", "authorization.k8s.io":
		return true
	}
	return false
}

// evaluatorFor returns the evaluator of a kind. list is nil in admission.
func evaluatorFor(r schema.GroupResource, list lister, d devices, now func() time.Time) quota.Evaluator {
	switch r {
	case corev1.Resource("pods"):
		return pods(list, now)
	case corev1.Resource("services"):
		return services(list)
	case corev1.Resource("persistentvolumeclaims"):
		return volumeClaims(list)
	case deviceClaims:
		return claims(list, d, now)
	}
	return generic.NewObjectCountEvaluator(r, list, legacyNames[r])
}

// Kinds returns the kinds to which a resource name of a quota applies, or nil if the name is unknown.
func Kinds(name corev1.ResourceName) []schema.GroupResource {
	if counted, ok := strings.CutPrefix(string(name), "count/"); ok {
		r := schema.ParseGroupResource(counted)
		if r.Resource == "" || uncounted(r) {
			return nil
		}
		return []schema.GroupResource{r}
	}
	for r, plain := range legacyNames {
		if plain == name {
			return []schema.GroupResource{r}
		}
	}
	for _, e := range []*evaluator{pods(nil, time.Now), services(nil), volumeClaims(nil), claims(nil, nil, time.Now)} {
		if !e.names(name) {
			continue
		}
		if rest, requested := strings.CutPrefix(string(name), requestsPrefix); requested && e.resource == corev1.Resource("pods") &&
			(isExtended(rest) || strings.HasPrefix(rest, devicePrefix)) {
			return []schema.GroupResource{e.resource, deviceClaims} // a device class may provide it
		}
		return []schema.GroupResource{e.resource}
	}
	return nil
}
