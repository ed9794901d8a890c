package coreapi

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/validate"
)

func validatingWebhookConfigurationResource() resource {
	return resource{
		name: "validatingwebhookconfigurations", singular: "validatingwebhookconfiguration", categories: []string{"api-extensions"}, clusterScoped: true,
		object: &admissionregistrationv1.ValidatingWebhookConfiguration{}, list: &admissionregistrationv1.ValidatingWebhookConfigurationList{},
		rules:       validate.Changing(validate.ValidateValidatingWebhookConfiguration, validate.ValidateValidatingWebhookConfigurationUpdate),
		defaults:    defaults.Of(defaults.DefaultValidatingWebhookConfiguration),
		columns:     columns.ValidatingWebhookConfigurationColumns,
		generations: true,
		spec: partOf("webhooks", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) *[]admissionregistrationv1.ValidatingWebhook {
			return &c.Webhooks
		}),
	}
}

func mutatingWebhookConfigurationResource() resource {
	return resource{
		name: "mutatingwebhookconfigurations", singular: "mutatingwebhookconfiguration", categories: []string{"api-extensions"}, clusterScoped: true,
		object: &admissionregistrationv1.MutatingWebhookConfiguration{}, list: &admissionregistrationv1.MutatingWebhookConfigurationList{},
		rules:       validate.Changing(validate.ValidateMutatingWebhookConfiguration, validate.ValidateMutatingWebhookConfigurationUpdate),
		defaults:    defaults.Of(defaults.DefaultMutatingWebhookConfiguration),
		columns:     columns.MutatingWebhookConfigurationColumns,
		generations: true,
		spec: partOf("webhooks", func(c *admissionregistrationv1.MutatingWebhookConfiguration) *[]admissionregistrationv1.MutatingWebhook {
			return &c.Webhooks
		}),
	}
}

func validatingAdmissionPolicyResource() resource {
	return resource{
		name: "validatingadmissionpolicies", singular: "validatingadmissionpolicy", categories: []string{"api-extensions"}, clusterScoped: true,
		object: &admissionregistrationv1.ValidatingAdmissionPolicy{}, list: &admissionregistrationv1.ValidatingAdmissionPolicyList{},
		rules:       validate.Compiling(validate.ValidateValidatingAdmissionPolicy, validate.ValidateValidatingAdmissionPolicyExpressions),
		defaults:    defaults.Of(defaults.DefaultValidatingAdmissionPolicy),
		columns:     columns.ValidatingAdmissionPolicyColumns,
		generations: true, authorize: authorizeParamKind,
		spec: specOf(func(p *admissionregistrationv1.ValidatingAdmissionPolicy) *admissionregistrationv1.ValidatingAdmissionPolicySpec {
			return &p.Spec
		}),
		status: statusOf(func(p *admissionregistrationv1.ValidatingAdmissionPolicy) *admissionregistrationv1.ValidatingAdmissionPolicyStatus {
			return &p.Status
		}),
	}
}

func validatingAdmissionPolicyBindingResource() resource {
	return resource{
		name: "validatingadmissionpolicybindings", singular: "validatingadmissionpolicybinding", categories: []string{"api-extensions"}, clusterScoped: true,
		object: &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, list: &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{},
		rules:       validate.Same(validate.ValidateValidatingAdmissionPolicyBinding),
		defaults:    defaults.Of(defaults.DefaultValidatingAdmissionPolicyBinding),
		columns:     columns.ValidatingAdmissionPolicyBindingColumns,
		generations: true, authorize: authorizeParamRef,
		spec: specOf(func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec {
			return &b.Spec
		}),
	}
}

func mutatingAdmissionPolicyResource() resource {
	return resource{
		name: "mutatingadmissionpolicies", singular: "mutatingadmissionpolicy", categories: []string{"api-extensions"}, clusterScoped: true,
		object: &admissionregistrationv1.MutatingAdmissionPolicy{}, list: &admissionregistrationv1.MutatingAdmissionPolicyList{},
		rules:       validate.Compiling(validate.ValidateMutatingAdmissionPolicy, validate.ValidateMutatingAdmissionPolicyExpressions),
		defaults:    defaults.Of(defaults.DefaultMutatingAdmissionPolicy),
		columns:     columns.MutatingAdmissionPolicyColumns,
		generations: true, authorize: authorizeParamKind,
		spec: specOf(func(p *admissionregistrationv1.MutatingAdmissionPolicy) *admissionregistrationv1.MutatingAdmissionPolicySpec {
			return &p.Spec
		}),
	}
}

func mutatingAdmissionPolicyBindingResource() resource {
	return resource{
		name: "mutatingadmissionpolicybindings", singular: "mutatingadmissionpolicybinding", categories: []string{"api-extensions"}, clusterScoped: true,
		object: &admissionregistrationv1.MutatingAdmissionPolicyBinding{}, list: &admissionregistrationv1.MutatingAdmissionPolicyBindingList{},
		rules:       validate.Same(validate.ValidateMutatingAdmissionPolicyBinding),
		defaults:    defaults.Of(defaults.DefaultMutatingAdmissionPolicyBinding),
		columns:     columns.MutatingAdmissionPolicyBindingColumns,
		generations: true, authorize: authorizeParamRef,
		spec: specOf(func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec {
			return &b.Spec
		}),
	}
}
