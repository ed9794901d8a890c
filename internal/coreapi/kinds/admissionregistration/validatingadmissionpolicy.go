package admissionregistration

import (
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func validatingAdmissionPolicyResource() registry.Resource {
	return registry.Resource{
		Name: "validatingadmissionpolicies", Singular: "validatingadmissionpolicy", Categories: []string{"api-extensions"}, ClusterScoped: true,
		Object: &admissionregistrationv1.ValidatingAdmissionPolicy{}, List: &admissionregistrationv1.ValidatingAdmissionPolicyList{},
		Samples: []string{
			"metadata: {name: a}\n" +
				"spec: {matchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE], resources: [configmaps]}]}, validations: [{expression: 'true'}]}",
		},
		Rules:       compiling(validateValidatingAdmissionPolicy, validateValidatingAdmissionPolicyExpressions),
		Defaults:    defaults.Of(defaultValidatingAdmissionPolicy),
		Columns:     validatingAdmissionPolicyColumns,
		Generations: true, Authorize: authorizeParamKind,
		Spec: registry.SpecOf(func(p *admissionregistrationv1.ValidatingAdmissionPolicy) *admissionregistrationv1.ValidatingAdmissionPolicySpec {
			return &p.Spec
		}),
		Status: registry.StatusOf(func(p *admissionregistrationv1.ValidatingAdmissionPolicy) *admissionregistrationv1.ValidatingAdmissionPolicyStatus {
			return &p.Status
		}),
	}
}

func validatingAdmissionPolicyColumns() columns.Printer {
	return columns.Show(func(p *admissionregistrationv1.ValidatingAdmissionPolicy, now time.Time) []any {
		return []any{p.Name, int64(len(p.Spec.Validations)), paramKindCell(p.Spec.ParamKind), columns.AgeOf(p, now)}
	}, columns.Name(), columns.Number("Validations", "How many validations the policy makes"), paramKindColumn(), columns.Age())
}

func defaultValidatingAdmissionPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
	defaults.Point(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	resources(p.Spec.MatchConstraints)
}

func validateValidatingAdmissionPolicyExpressions(p, old *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	e := &expressions{stored: validatingTexts(old), params: p.Spec.ParamKind != nil}
	spec := field.NewPath("spec")
	e.conditions(p.Spec.MatchConditions, spec.Child("matchConditions"))
	e.variables(p.Spec.Variables, spec.Child("variables"))
	for i, v := range p.Spec.Validations {
		at := spec.Child("validations").Index(i)
		e.compile(e.compiler, v.Expression, &validating.ValidationCondition{Expression: strings.TrimSpace(v.Expression)}, true, false, at.Child("expression"))
		e.compile(e.compiler, v.MessageExpression, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression},
			false, false, at.Child("messageExpression"))
	}
	for i, a := range p.Spec.AuditAnnotations {
		e.compile(e.compiler, a.ValueExpression, &validating.AuditAnnotationCondition{ValueExpression: strings.TrimSpace(a.ValueExpression)},
			true, false, spec.Child("auditAnnotations").Index(i).Child("valueExpression"))
	}
	return e.errs
}

func validatingTexts(p *admissionregistrationv1.ValidatingAdmissionPolicy) sets.Set[string] {
	if p == nil {
		return nil
	}
	texts := conditionTexts(p.Spec.MatchConditions, p.Spec.Variables)
	for _, v := range p.Spec.Validations {
		texts.Insert(v.Expression, v.MessageExpression)
	}
	for _, a := range p.Spec.AuditAnnotations {
		texts.Insert(a.ValueExpression)
	}
	return texts
}

const (
	maxAuditAnnotations = 20
	maxValueExpression  = 5 * 1024
)

func validateValidatingAdmissionPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	errs := validate.PlainMeta(&p.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	errs = append(errs, policyBasics(p.Spec.FailurePolicy, p.Spec.ParamKind, p.Spec.MatchConstraints,
		p.Spec.MatchConditions, p.Spec.Variables, spec)...)
	if len(p.Spec.Validations) == 0 && len(p.Spec.AuditAnnotations) == 0 {
		const something = "validations or auditAnnotations must contain at least one item"
		return append(errs, field.Required(spec.Child("validations"), something),
			field.Required(spec.Child("auditAnnotations"), something))
	}
	errs = append(errs, validate.Each(p.Spec.Validations, spec.Child("validations"), policyValidation)...)
	return append(errs, auditAnnotations(p.Name, p.Spec.AuditAnnotations, spec.Child("auditAnnotations"))...)
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
		errs = append(errs, validate.OneOf(*v.Reason, path.Child("reason"), metav1.StatusReasonForbidden,
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
		// Audit events contain the key as <policy>/<key>, which must be a qualified name as a whole.
		errs = append(errs, validate.Qualified(policy+"/"+annotation.Key, key)...)
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
