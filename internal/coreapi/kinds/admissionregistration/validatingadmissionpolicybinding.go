package admissionregistration

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func validatingAdmissionPolicyBindingResource() registry.Resource {
	return registry.Resource{
		Name: "validatingadmissionpolicybindings", Singular: "validatingadmissionpolicybinding", Categories: []string{"api-extensions"}, ClusterScoped: true,
		Object: &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, List: &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{},
		Samples: []string{
			"metadata: {name: a}\n" +
				"spec: {policyName: a, validationActions: [Deny], matchResources: {}}",
		},
		Rules:       validate.SameOnUpdate(validateValidatingAdmissionPolicyBinding),
		Defaults:    defaults.Of(defaultValidatingAdmissionPolicyBinding),
		Columns:     validatingAdmissionPolicyBindingColumns,
		Generations: true, Authorize: authorizeParamRef,
		Spec: registry.SpecOf(func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec {
			return &b.Spec
		}),
	}
}

func validatingAdmissionPolicyBindingColumns() columns.Printer {
	return columns.Show(func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding, now time.Time) []any {
		return []any{b.Name, b.Spec.PolicyName, params(b.Spec.ParamRef), columns.AgeOf(b, now)}
	}, policyBindingColumns()...)
}

func defaultValidatingAdmissionPolicyBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	resources(b.Spec.MatchResources)
}

func validateValidatingAdmissionPolicyBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	errs := validate.PlainMeta(&b.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	errs = append(errs, boundPolicy(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources, spec)...)
	return append(errs, validationActions(b.Spec.ValidationActions, spec.Child("validationActions"))...)
}

func validationActions(actions []admissionregistrationv1.ValidationAction, path *field.Path) field.ErrorList {
	if len(actions) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	seen := sets.New[admissionregistrationv1.ValidationAction]()
	for i, action := range actions {
		errs = append(errs, validate.OneOf(action, path.Index(i), admissionregistrationv1.Audit, admissionregistrationv1.Deny,
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
