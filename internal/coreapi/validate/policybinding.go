package validate

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func ValidateValidatingAdmissionPolicyBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	errs := plainMeta(&b.ObjectMeta, clusterScoped, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	errs = append(errs, boundPolicy(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources, spec)...)
	return append(errs, validationActions(b.Spec.ValidationActions, spec.Child("validationActions"))...)
}

func ValidateMutatingAdmissionPolicyBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	errs := plainMeta(&b.ObjectMeta, clusterScoped, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	errs = append(errs, boundPolicy(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources, spec)...)
	return append(errs, notDeletes(b.Spec.MatchResources, spec.Child("matchResources"))...)
}

func boundPolicy(name string, ref *admissionregistrationv1.ParamRef, resources *admissionregistrationv1.MatchResources,
	spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(spec.Child("policyName"), ""))
	} else {
		errs = append(errs, invalid(spec.Child("policyName"), name, validation.NameIsDNSSubdomain(name, false))...)
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
		errs = append(errs, invalid(path.Child("name"), r.Name, content.IsPathSegmentName(r.Name))...)
	}
	errs = append(errs, selector(r.Selector, path.Child("selector"))...)
	switch {
	case r.Name != "" && r.Selector != nil:
		errs = append(errs, field.Forbidden(path.Child("name"), both), field.Forbidden(path.Child("selector"), both))
	case r.Name == "" && r.Selector == nil:
		errs = append(errs, field.Required(path, "one of name or selector must be specified"))
	}
	if action, at := r.ParameterNotFoundAction, path.Child("parameterNotFoundAction"); action == nil || *action == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, oneOf(*action, at, admissionregistrationv1.DenyAction, admissionregistrationv1.AllowAction)...)
	}
	return errs
}

func validationActions(actions []admissionregistrationv1.ValidationAction, path *field.Path) field.ErrorList {
	if len(actions) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	seen := sets.New[admissionregistrationv1.ValidationAction]()
	for i, action := range actions {
		errs = append(errs, oneOf(action, path.Index(i), admissionregistrationv1.Audit, admissionregistrationv1.Deny,
			admissionregistrationv1.Warn)...)
		if seen.Has(action) {
			errs = append(errs, field.Duplicate(path.Index(i), action))
		}
		seen.Insert(action)
	}
	if seen.HasAll(admissionregistrationv1.Deny, admissionregistrationv1.Warn) {
		errs = append(errs, field.Invalid(path, actions, "must not contain both Deny and Warn (repeating the same "+
			"validation failure information in the API response and headers serves no purpose)"))
	}
	return errs
}

func matchResources(m *admissionregistrationv1.MatchResources, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if at := path.Child("matchPolicy"); m.MatchPolicy == nil {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, oneOf(*m.MatchPolicy, at, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)...)
	}
	// An absent selector makes the library refuse every request that the policy meets; defaulting fills them in.
	if at := path.Child("namespaceSelector"); m.NamespaceSelector == nil {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, selector(m.NamespaceSelector, at)...)
	}
	if at := path.Child("objectSelector"); m.ObjectSelector == nil {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, selector(m.ObjectSelector, at)...)
	}
	for i := range m.ResourceRules {
		errs = append(errs, namedRule(&m.ResourceRules[i], path.Child("resourceRules").Index(i))...)
	}
	for i := range m.ExcludeResourceRules {
		errs = append(errs, namedRule(&m.ExcludeResourceRules[i], path.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

func namedRule(r *admissionregistrationv1.NamedRuleWithOperations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, name := range r.ResourceNames {
		at := path.Child("resourceNames").Index(i)
		errs = append(errs, invalid(at, name, content.IsPathSegmentName(name))...)
		if names.Has(name) {
			errs = append(errs, field.Duplicate(at, name))
		}
		names.Insert(name)
	}
	return append(errs, matchRule(&r.RuleWithOperations, path)...)
}

// notDeletes keeps mutating policies to requests that carry an object to mutate; to them '*' does not mean DELETE.
func notDeletes(m *admissionregistrationv1.MatchResources, path *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	var errs field.ErrorList
	for _, rule := range m.ResourceRules {
		for _, operation := range rule.Operations {
			errs = append(errs, oneOf(operation, path.Child("resourceRules", "operations"),
				admissionregistrationv1.OperationAll, admissionregistrationv1.Connect, admissionregistrationv1.Create,
				admissionregistrationv1.Update)...)
		}
	}
	return errs
}
