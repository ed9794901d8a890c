package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/validate"
)

func boundPolicy(name string, ref *admissionregistrationv1.ParamRef, resources *admissionregistrationv1.MatchResources,
	spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(spec.Child("policyName"), ""))
	} else {
		errs = append(errs, validate.Invalid(spec.Child("policyName"), name, validation.NameIsDNSSubdomain(name, false))...)
	}
	if ref != nil {
		errs = append(errs, paramRef(ref, spec.Child("paramRef"))...)
	}
	if resources != nil {
		errs = append(errs, matchResources(resources, spec.Child("matchResources"))...)
	}
	return errs
}

func paramRef(r *admissionregistrationv1.ParamRef, path *field.Path) field.ErrorList {
	const both = "name and selector are mutually exclusive"
	var errs field.ErrorList
	if r.Name != "" {
		errs = append(errs, validate.Invalid(path.Child("name"), r.Name, content.IsPathSegmentName(r.Name))...)
	}
	errs = append(errs, validate.Selector(r.Selector, path.Child("selector"))...)
	switch {
	case r.Name != "" && r.Selector != nil:
		errs = append(errs, field.Forbidden(path.Child("name"), both), field.Forbidden(path.Child("selector"), both))
	case r.Name == "" && r.Selector == nil:
		errs = append(errs, field.Required(path, "one of name or selector must be specified"))
	}
	if action, at := r.ParameterNotFoundAction, path.Child("parameterNotFoundAction"); action == nil || *action == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, validate.OneOf(*action, at, admissionregistrationv1.DenyAction, admissionregistrationv1.AllowAction)...)
	}
	return errs
}

func matchResources(m *admissionregistrationv1.MatchResources, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if at := path.Child("matchPolicy"); m.MatchPolicy == nil {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, validate.OneOf(*m.MatchPolicy, at, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)...)
	}
	// Without a selector, k8s.io/apiserver refuses every request that the policy matches. Defaulting fills the selectors in.
	if at := path.Child("namespaceSelector"); m.NamespaceSelector == nil {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, validate.Selector(m.NamespaceSelector, at)...)
	}
	if at := path.Child("objectSelector"); m.ObjectSelector == nil {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, validate.Selector(m.ObjectSelector, at)...)
	}
	errs = append(errs, validate.Each(m.ResourceRules, path.Child("resourceRules"), namedRule)...)
	return append(errs, validate.Each(m.ExcludeResourceRules, path.Child("excludeResourceRules"), namedRule)...)
}

func namedRule(r *admissionregistrationv1.NamedRuleWithOperations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, name := range r.ResourceNames {
		at := path.Child("resourceNames").Index(i)
		errs = append(errs, validate.Invalid(at, name, content.IsPathSegmentName(name))...)
		if names.Has(name) {
			errs = append(errs, field.Duplicate(at, name))
		}
		names.Insert(name)
	}
	return append(errs, matchRule(&r.RuleWithOperations, path)...)
}

// notDeletes restricts mutating policies to operations that carry an object to mutate. For mutating policies '*' does not
// include DELETE.
func notDeletes(m *admissionregistrationv1.MatchResources, path *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	var errs field.ErrorList
	for _, rule := range m.ResourceRules {
		for _, operation := range rule.Operations {
			errs = append(errs, validate.OneOf(operation, path.Child("resourceRules", "operations"),
				admissionregistrationv1.OperationAll, admissionregistrationv1.Connect, admissionregistrationv1.Create,
				admissionregistrationv1.Update)...)
		}
	}
	return errs
}
