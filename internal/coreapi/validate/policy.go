package validate

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxAuditAnnotations = 20
	maxValueExpression  = 5 * 1024
)

func ValidateValidatingAdmissionPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	errs := plainMeta(&p.ObjectMeta, clusterScoped, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	errs = append(errs, policyBasics(p.Spec.FailurePolicy, p.Spec.ParamKind, p.Spec.MatchConstraints,
		p.Spec.MatchConditions, p.Spec.Variables, spec)...)
	if len(p.Spec.Validations) == 0 && len(p.Spec.AuditAnnotations) == 0 {
		const something = "validations or auditAnnotations must contain at least one item"
		return append(errs, field.Required(spec.Child("validations"), something),
			field.Required(spec.Child("auditAnnotations"), something))
	}
	for i := range p.Spec.Validations {
		errs = append(errs, policyValidation(&p.Spec.Validations[i], spec.Child("validations").Index(i))...)
	}
	return append(errs, auditAnnotations(p.Name, p.Spec.AuditAnnotations, spec.Child("auditAnnotations"))...)
}

func ValidateMutatingAdmissionPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	errs := plainMeta(&p.ObjectMeta, clusterScoped, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	errs = append(errs, policyBasics(p.Spec.FailurePolicy, p.Spec.ParamKind, p.Spec.MatchConstraints,
		p.Spec.MatchConditions, p.Spec.Variables, spec)...)
	errs = append(errs, notDeletes(p.Spec.MatchConstraints, spec.Child("matchConstraints"))...)
	if len(p.Spec.Mutations) == 0 {
		errs = append(errs, field.Required(spec.Child("mutations"), "mutations must contain at least one item"))
	}
	for i := range p.Spec.Mutations {
		errs = append(errs, mutation(&p.Spec.Mutations[i], spec.Child("mutations").Index(i))...)
	}
	return append(errs, required(p.Spec.ReinvocationPolicy, spec.Child("reinvocationPolicy"),
		admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)...)
}

func policyBasics(failure *admissionregistrationv1.FailurePolicyType, params *admissionregistrationv1.ParamKind,
	constraints *admissionregistrationv1.MatchResources, conditions []admissionregistrationv1.MatchCondition,
	variables []admissionregistrationv1.Variable, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if failure == nil {
		errs = append(errs, field.Required(spec.Child("failurePolicy"), ""))
	} else {
		errs = append(errs, oneOf(*failure, spec.Child("failurePolicy"), admissionregistrationv1.Fail,
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
			// Expressions are typed by what they can meet, and without a rule that is nothing.
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

// isIdentifier leaves CEL's reserved words to the compiler.
func isIdentifier(s string) bool {
	for i, c := range s {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func policyValidation(v *admissionregistrationv1.Validation, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if strings.TrimSpace(v.Expression) == "" {
		errs = append(errs, field.Required(path.Child("expression"), "expression is not specified"))
	}
	message, oneLine := strings.TrimSpace(v.Message), !strings.ContainsAny(strings.TrimSpace(v.Message), "\n\r")
	switch {
	case v.Message != "" && message == "":
		errs = append(errs, field.Invalid(path.Child("message"), v.Message, "must be non-empty if specified"))
	case !oneLine:
		errs = append(errs, field.Invalid(path.Child("message"), v.Message, "must not contain line breaks"))
	}
	if v.MessageExpression != "" && strings.TrimSpace(v.MessageExpression) == "" {
		errs = append(errs, field.Invalid(path.Child("messageExpression"), v.MessageExpression,
			"must be non-empty if specified"))
	}
	if v.Reason != nil {
		errs = append(errs, oneOf(*v.Reason, path.Child("reason"), metav1.StatusReasonForbidden,
			metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonUnauthorized)...)
	}
	return errs
}

func auditAnnotations(policy string, list []admissionregistrationv1.AuditAnnotation, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(list) > maxAuditAnnotations {
		errs = append(errs, field.Invalid(path, list,
			fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations)))
	}
	keys := sets.New[string]()
	for i, annotation := range list {
		key := path.Index(i).Child("key")
		// The audit event shows the key as <policy>/<key>, which has to be a qualified name as a whole.
		errs = append(errs, qualified(policy+"/"+annotation.Key, key)...)
		if keys.Has(annotation.Key) {
			errs = append(errs, field.Duplicate(key, annotation.Key))
		}
		keys.Insert(annotation.Key)
		switch value, at := strings.TrimSpace(annotation.ValueExpression), path.Index(i).Child("valueExpression"); {
		case value == "":
			errs = append(errs, field.Required(at, "valueExpression is not specified"))
		case len(value) > maxValueExpression:
			errs = append(errs, field.Required(at, fmt.Sprintf("must not exceed %d bytes in length", maxValueExpression)))
		}
	}
	return errs
}

// mutation asks for the expression of its own type and no other.
func mutation(m *admissionregistrationv1.Mutation, path *field.Path) field.ErrorList {
	apply, patch := path.Child("applyConfiguration"), path.Child("jsonPatch")
	var errs field.ErrorList
	switch m.PatchType {
	case admissionregistrationv1.PatchTypeApplyConfiguration:
		switch {
		case m.ApplyConfiguration == nil:
			errs = append(errs, field.Required(apply, "must be specified when patchType is ApplyConfiguration"))
		case strings.TrimSpace(m.ApplyConfiguration.Expression) == "":
			errs = append(errs, field.Required(apply.Child("expression"), ""))
		}
		if m.JSONPatch != nil {
			errs = append(errs, field.Forbidden(patch, "must not be specified when patchType is ApplyConfiguration"))
		}
	case admissionregistrationv1.PatchTypeJSONPatch:
		switch {
		case m.JSONPatch == nil:
			errs = append(errs, field.Required(patch, "must be specified when patchType is JSONPatch"))
		case strings.TrimSpace(m.JSONPatch.Expression) == "":
			errs = append(errs, field.Required(patch.Child("expression"), ""))
		}
		if m.ApplyConfiguration != nil {
			errs = append(errs, field.Forbidden(apply, "must not be specified when patchType is JSONPatch"))
		}
	default:
		return required(m.PatchType, path.Child("patchType"), admissionregistrationv1.PatchTypeApplyConfiguration,
			admissionregistrationv1.PatchTypeJSONPatch)
	}
	return errs
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
