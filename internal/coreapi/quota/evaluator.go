package quota

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
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

// evaluator knows what objects of one kind use, of more than their number.
type evaluator struct {
	resource schema.GroupResource
	// charges says which requests may use more than before.
	charges func(admission.Attributes) bool
	// names says which of the names in a quota are about this kind.
	names func(corev1.ResourceName) bool
	usage func(runtime.Object) (corev1.ResourceList, error)
	// inScope says whether an object is in a scope. Nil: the kind has no scopes, and a quota with one is not about it.
	inScope func(corev1.ScopedResourceSelectorRequirement, runtime.Object) (bool, error)
	// requires says what an object has to say for itself where a quota names it. Nil: nothing.
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

// matchesSelector compares the value that an object has for a scope, empty for none, with what a selector asks for.
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

func number(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

func unexpected(want string, obj runtime.Object) error {
	return fmt.Errorf("expected a %s, got %T", want, obj)
}
