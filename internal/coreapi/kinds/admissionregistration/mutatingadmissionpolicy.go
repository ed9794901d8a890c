package admissionregistration

import (
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func mutatingAdmissionPolicyResource() registry.Resource {
	return registry.Resource{
		Name: "mutatingadmissionpolicies", Singular: "mutatingadmissionpolicy", Categories: []string{"api-extensions"}, ClusterScoped: true,
		Object: &admissionregistrationv1.MutatingAdmissionPolicy{}, List: &admissionregistrationv1.MutatingAdmissionPolicyList{},
		Samples: []string{
			"metadata: {name: a}\n" +
				"spec: {reinvocationPolicy: Never, matchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE], resources: [configmaps]}]}, mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", path: \"/a\"}]'}}]}",
		},
		Rules:       compiling(validateMutatingAdmissionPolicy, validateMutatingAdmissionPolicyExpressions),
		Defaults:    defaults.Of(defaultMutatingAdmissionPolicy),
		Columns:     mutatingAdmissionPolicyColumns,
		Generations: true, Authorize: authorizeParamKind,
		Spec: registry.SpecOf(func(p *admissionregistrationv1.MutatingAdmissionPolicy) *admissionregistrationv1.MutatingAdmissionPolicySpec {
			return &p.Spec
		}),
	}
}

func mutatingAdmissionPolicyColumns() columns.Printer {
	return columns.Show(func(p *admissionregistrationv1.MutatingAdmissionPolicy, now time.Time) []any {
		return []any{p.Name, int64(len(p.Spec.Mutations)), paramKindCell(p.Spec.ParamKind), columns.AgeOf(p, now)}
	}, columns.Name(), columns.Number("Mutations", "How many mutations the policy makes"), paramKindColumn(), columns.Age())
}

func defaultMutatingAdmissionPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) {
	defaults.Point(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	resources(p.Spec.MatchConstraints)
}

func validateMutatingAdmissionPolicyExpressions(p, old *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	e := &expressions{stored: mutatingTexts(old), params: p.Spec.ParamKind != nil}
	spec := field.NewPath("spec")
	e.conditions(p.Spec.MatchConditions, spec.Child("matchConditions"))
	e.variables(p.Spec.Variables, spec.Child("variables"))
	for i, m := range p.Spec.Mutations {
		at := spec.Child("mutations").Index(i)
		if apply := m.ApplyConfiguration; apply != nil && m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration {
			e.compile(e.compiler, apply.Expression, &patch.ApplyConfigurationCondition{Expression: strings.TrimSpace(apply.Expression)},
				true, true, at.Child("applyConfiguration", "expression"))
		}
		if json := m.JSONPatch; json != nil && m.PatchType == admissionregistrationv1.PatchTypeJSONPatch {
			e.compile(e.compiler, json.Expression, &patch.JSONPatchCondition{Expression: strings.TrimSpace(json.Expression)},
				true, true, at.Child("jsonPatch", "expression"))
		}
	}
	return e.errs
}

func mutatingTexts(p *admissionregistrationv1.MutatingAdmissionPolicy) sets.Set[string] {
	if p == nil {
		return nil
	}
	texts := conditionTexts(p.Spec.MatchConditions, p.Spec.Variables)
	for _, m := range p.Spec.Mutations {
		if m.ApplyConfiguration != nil {
			texts.Insert(m.ApplyConfiguration.Expression)
		}
		if m.JSONPatch != nil {
			texts.Insert(m.JSONPatch.Expression)
		}
	}
	return texts
}

func validateMutatingAdmissionPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	errs := validate.PlainMeta(&p.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	errs = append(errs, policyBasics(p.Spec.FailurePolicy, p.Spec.ParamKind, p.Spec.MatchConstraints,
		p.Spec.MatchConditions, p.Spec.Variables, spec)...)
	errs = append(errs, notDeletes(p.Spec.MatchConstraints, spec.Child("matchConstraints"))...)
	if len(p.Spec.Mutations) == 0 {
		errs = append(errs, field.Required(spec.Child("mutations"), "mutations must contain at least one item"))
	}
	errs = append(errs, validate.Each(p.Spec.Mutations, spec.Child("mutations"), mutation)...)
	return append(errs, validate.Required(p.Spec.ReinvocationPolicy, spec.Child("reinvocationPolicy"),
		admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)...)
}

// mutation requires the expression of its patch type and forbids the other one.
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
		return validate.Required(m.PatchType, path.Child("patchType"), admissionregistrationv1.PatchTypeApplyConfiguration,
			admissionregistrationv1.PatchTypeJSONPatch)
	}
	return errs
}
