package defaults

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sideEffects and admissionReviewVersions have no default in v1: a webhook has to say them.

func DefaultValidatingWebhookConfiguration(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	for i := range c.Webhooks {
		hook := &c.Webhooks[i]
		point(&hook.FailurePolicy, admissionregistrationv1.Fail)
		point(&hook.TimeoutSeconds, 10)
		matching(&hook.MatchPolicy, &hook.NamespaceSelector, &hook.ObjectSelector)
		clientConfig(&hook.ClientConfig)
		rules(hook.Rules)
	}
}

func DefaultMutatingWebhookConfiguration(c *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range c.Webhooks {
		hook := &c.Webhooks[i]
		point(&hook.FailurePolicy, admissionregistrationv1.Fail)
		point(&hook.TimeoutSeconds, 10)
		point(&hook.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
		matching(&hook.MatchPolicy, &hook.NamespaceSelector, &hook.ObjectSelector)
		clientConfig(&hook.ClientConfig)
		rules(hook.Rules)
	}
}

func DefaultValidatingAdmissionPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
	point(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	resources(p.Spec.MatchConstraints)
}

func DefaultMutatingAdmissionPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) {
	point(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	resources(p.Spec.MatchConstraints)
}

func DefaultValidatingAdmissionPolicyBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	resources(b.Spec.MatchResources)
}

func DefaultMutatingAdmissionPolicyBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
	resources(b.Spec.MatchResources)
}

// resources is the one that policies cannot do without: the library refuses every request that meets a policy whose
// selectors are absent.
func resources(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	matching(&m.MatchPolicy, &m.NamespaceSelector, &m.ObjectSelector)
	for _, list := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range list {
			point(&list[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}

func matching(policy **admissionregistrationv1.MatchPolicyType, namespaces, objects **metav1.LabelSelector) {
	point(policy, admissionregistrationv1.Equivalent)
	point(namespaces, metav1.LabelSelector{})
	point(objects, metav1.LabelSelector{})
}

func clientConfig(c *admissionregistrationv1.WebhookClientConfig) {
	if c.Service != nil {
		point(&c.Service.Port, 443)
	}
}

func rules(list []admissionregistrationv1.RuleWithOperations) {
	for i := range list {
		point(&list[i].Scope, admissionregistrationv1.AllScopes)
	}
}
