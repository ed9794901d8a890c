package coreapi

import admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

func admissionResources() []resource {
	extensions := []string{"api-extensions"}
	return []resource{
		{
			name: "validatingwebhookconfigurations", singular: "validatingwebhookconfiguration", categories: extensions, clusterScoped: true,
			object: &admissionregistrationv1.ValidatingWebhookConfiguration{}, list: &admissionregistrationv1.ValidatingWebhookConfigurationList{},
			generations: true,
			spec: partOf("webhooks", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) *[]admissionregistrationv1.ValidatingWebhook {
				return &c.Webhooks
			}),
		},
		{
			name: "mutatingwebhookconfigurations", singular: "mutatingwebhookconfiguration", categories: extensions, clusterScoped: true,
			object: &admissionregistrationv1.MutatingWebhookConfiguration{}, list: &admissionregistrationv1.MutatingWebhookConfigurationList{},
			generations: true,
			spec: partOf("webhooks", func(c *admissionregistrationv1.MutatingWebhookConfiguration) *[]admissionregistrationv1.MutatingWebhook {
				return &c.Webhooks
			}),
		},
		{
			name: "validatingadmissionpolicies", singular: "validatingadmissionpolicy", categories: extensions, clusterScoped: true,
			object: &admissionregistrationv1.ValidatingAdmissionPolicy{}, list: &admissionregistrationv1.ValidatingAdmissionPolicyList{},
			generations: true, authorize: authorizeParamKind,
			spec: specOf(func(p *admissionregistrationv1.ValidatingAdmissionPolicy) *admissionregistrationv1.ValidatingAdmissionPolicySpec {
				return &p.Spec
			}),
			status: statusOf(func(p *admissionregistrationv1.ValidatingAdmissionPolicy) *admissionregistrationv1.ValidatingAdmissionPolicyStatus {
				return &p.Status
			}),
		},
		{
			name: "validatingadmissionpolicybindings", singular: "validatingadmissionpolicybinding", categories: extensions, clusterScoped: true,
			object: &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, list: &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{},
			generations: true, authorize: authorizeParamRef,
			spec: specOf(func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec {
				return &b.Spec
			}),
		},
		{
			name: "mutatingadmissionpolicies", singular: "mutatingadmissionpolicy", categories: extensions, clusterScoped: true,
			object: &admissionregistrationv1.MutatingAdmissionPolicy{}, list: &admissionregistrationv1.MutatingAdmissionPolicyList{},
			generations: true, authorize: authorizeParamKind,
			spec: specOf(func(p *admissionregistrationv1.MutatingAdmissionPolicy) *admissionregistrationv1.MutatingAdmissionPolicySpec {
				return &p.Spec
			}),
		},
		{
			name: "mutatingadmissionpolicybindings", singular: "mutatingadmissionpolicybinding", categories: extensions, clusterScoped: true,
			object: &admissionregistrationv1.MutatingAdmissionPolicyBinding{}, list: &admissionregistrationv1.MutatingAdmissionPolicyBindingList{},
			generations: true, authorize: authorizeParamRef,
			spec: specOf(func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec {
				return &b.Spec
			}),
		},
	}
}
