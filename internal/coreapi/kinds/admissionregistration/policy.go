package admissionregistration

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/validate"
)

func policyBasics(failure *admissionregistrationv1.FailurePolicyType, params *admissionregistrationv1.ParamKind,
	constraints *admissionregistrationv1.MatchResources, conditions []admissionregistrationv1.MatchCondition,
	variables []admissionregistrationv1.Variable, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if failure == nil {
		errs = append(errs, field.Required(spec.Child("failurePolicy"), ""))
	} else {
		errs = append(errs, validate.OneOf(*failure, spec.Child("failurePolicy"), admissionregistrationv1.Fail,
			admissionregistrationv1.Ignore)...)
	}
	if params != nil {
		errs = append(errs, paramKind(params, spec.Child("paramKind"))...)
	}
	if path := spec.Child("matchConstraints"); constraints == nil {
		errs = append(errs, field.Required(path, ""))
	} else {
		errs = append(errs, matchResources(constraints, path)...)
		if len(constraints.ResourceRules) == 0 {
			// Expressions are type-checked against the kinds that the rules match, so at least one rule is required.
			errs = append(errs, field.Required(path.Child("resourceRules"), ""))
		}
	}
	errs = append(errs, matchConditions(conditions, spec.Child("matchConditions"))...)
	return append(errs, policyVariables(variables, spec.Child("variables"))...)
}

func policyVariables(variables []admissionregistrationv1.Variable, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, variable := range variables {
		at := path.Index(i)
		switch {
		case variable.Name == "":
			errs = append(errs, field.Required(at.Child("name"), "name is not specified"))
		case !isIdentifier(variable.Name):
			errs = append(errs, field.Invalid(at.Child("name"), variable.Name, "must be a valid CEL identifier"))
		}
		if strings.TrimSpace(variable.Expression) == "" {
			errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
		}
	}
	return errs
}

// isIdentifier does not check for CEL's reserved words; the compiler does.
func isIdentifier(s string) bool {
	for i, c := range s {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func paramKind(k *admissionregistrationv1.ParamKind, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	version := path.Child("apiVersion")
	switch gv, err := schema.ParseGroupVersion(k.APIVersion); {
	case k.APIVersion == "":
		errs = append(errs, field.Required(version, ""))
	case err != nil:
		errs = append(errs, field.Invalid(version, k.APIVersion, err.Error()))
	default:
		if messages := utilvalidation.IsDNS1123Subdomain(gv.Group); gv.Group != "" && len(messages) > 0 {
			errs = append(errs, field.Invalid(version, gv.Group, strings.Join(messages, ",")))
		}
		if messages := utilvalidation.IsDNS1035Label(gv.Version); gv.Version == "" {
			errs = append(errs, field.Invalid(version, k.APIVersion, "version must be specified"))
		} else if len(messages) > 0 {
			errs = append(errs, field.Invalid(version, gv.Version, strings.Join(messages, ",")))
		}
	}
	if k.Kind == "" {
		return append(errs, field.Required(path.Child("kind"), ""))
	}
	if messages := utilvalidation.IsDNS1035Label(strings.ToLower(k.Kind)); len(messages) > 0 {
		errs = append(errs, field.Invalid(path.Child("kind"), k.Kind,
			"may have mixed case, but should otherwise match: "+strings.Join(messages, ",")))
	}
	return errs
}
