package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/validate"
)

// matchRule checks the requests that a webhook or a policy matches. A wrong rule matches nothing, or everything, and neither is
// noticed until it causes harm.
func matchRule(r *admissionregistrationv1.RuleWithOperations, path *field.Path) field.ErrorList {
	errs := wildcards(r.Operations, path.Child("operations"), "operations")
	for i, operation := range r.Operations {
		errs = append(errs, validate.OneOf(operation, path.Child("operations").Index(i), admissionregistrationv1.OperationAll,
			admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Delete,
			admissionregistrationv1.Update)...)
	}
	errs = append(errs, wildcards(r.APIGroups, path.Child("apiGroups"), "API groups")...)
	errs = append(errs, wildcards(r.APIVersions, path.Child("apiVersions"), "API versions")...)
	for i, version := range r.APIVersions {
		if version == "" {
			errs = append(errs, field.Required(path.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, matchedResources(r.Resources, path.Child("resources"))...)
	if r.Scope != nil {
		errs = append(errs, validate.OneOf(*r.Scope, path.Child("scope"), admissionregistrationv1.AllScopes,
			admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope)...)
	}
	return errs
}

func wildcards[T ~string](values []T, path *field.Path, what string) field.ErrorList {
	switch {
	case len(values) == 0:
		return field.ErrorList{field.Required(path, "")}
	case len(values) > 1 && slices.Contains(values, "*"):
		return field.ErrorList{field.Invalid(path, values, "if '*' is present, must not specify other "+what)}
	}
	return nil
}

// matchedResources refuses an entry that an earlier wildcard already covers.
func matchedResources(resources []string, path *field.Path) field.ErrorList {
	if len(resources) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	allOf, everywhere := sets.New[string](), sets.New[string]() // x of x/*, y of */y
	for i, entry := range resources {
		if entry == "" {
			errs = append(errs, field.Required(path.Index(i), ""))
			continue
		}
		resource, subresource, nested := strings.Cut(entry, "/")
		if !nested {
			continue
		}
		if allOf.Has(resource) {
			errs = append(errs, field.Invalid(path.Index(i), entry,
				fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, entry)))
		}
		if everywhere.Has(subresource) {
			errs = append(errs, field.Invalid(path.Index(i), entry,
				fmt.Sprintf("if '*/%s' is present, must not specify %s", subresource, entry)))
		}
		if subresource == "*" {
			allOf.Insert(resource)
		}
		if resource == "*" {
			everywhere.Insert(subresource)
		}
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(path, resources, "if '*/*' is present, must not specify other resources"))
	}
	bare := func(entry string) bool { return entry != "*" && entry != "" && !strings.Contains(entry, "/") }
	if slices.Contains(resources, "*") && slices.ContainsFunc(resources, bare) {
		errs = append(errs, field.Invalid(path, resources,
			"if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}

// maxMatchConditions is the maximum number of match conditions of one webhook or policy, which are evaluated on every request.
const maxMatchConditions = 64

func matchConditions(conditions []admissionregistrationv1.MatchCondition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(conditions) > maxMatchConditions {
		errs = append(errs, field.TooMany(path, len(conditions), maxMatchConditions))
	}
	names := sets.New[string]()
	for i, condition := range conditions {
		at := path.Index(i)
		if strings.TrimSpace(condition.Expression) == "" {
			errs = append(errs, field.Required(at.Child("expression"), ""))
		}
		if condition.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		errs = append(errs, validate.Qualified(condition.Name, at.Child("name"))...)
		if names.Has(condition.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), condition.Name))
		}
		names.Insert(condition.Name)
	}
	return errs
}
