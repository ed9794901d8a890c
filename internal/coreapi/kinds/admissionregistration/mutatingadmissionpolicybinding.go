package admissionregistration

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func mutatingAdmissionPolicyBindingResource() registry.Resource {
	return registry.Resource{
		Name: "mutatingadmissionpolicybindings", Singular: "mutatingadmissionpolicybinding", Categories: []string{"api-extensions"}, ClusterScoped: true,
		Object: &admissionregistrationv1.MutatingAdmissionPolicyBinding{}, List: &admissionregistrationv1.MutatingAdmissionPolicyBindingList{},
		Samples: []string{
			"metadata: {name: a}\n" +
				"spec: {policyName: a}",
		},
		Rules:       validate.SameOnUpdate(validateMutatingAdmissionPolicyBinding),
		Defaults:    defaults.Of(defaultMutatingAdmissionPolicyBinding),
		Columns:     mutatingAdmissionPolicyBindingColumns,
		Generations: true, Authorize: authorizeParamRef,
		Spec: registry.SpecOf(func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec {
			return &b.Spec
		}),
	}
}

func mutatingAdmissionPolicyBindingColumns() columns.Printer {
	return columns.Show(func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding, now time.Time) []any {
		return []any{b.Name, b.Spec.PolicyName, params(b.Spec.ParamRef), columns.AgeOf(b, now)}
	}, policyBindingColumns()...)
}

func defaultMutatingAdmissionPolicyBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
	resources(b.Spec.MatchResources)
}

func validateMutatingAdmissionPolicyBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	errs := validate.PlainMeta(&b.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	errs = append(errs, boundPolicy(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources, spec)...)
	return append(errs, notDeletes(b.Spec.MatchResources, spec.Child("matchResources"))...)
}
