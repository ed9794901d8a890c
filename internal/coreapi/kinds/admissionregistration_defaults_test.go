package kinds_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestAdmissionregistrationDefaults(t *testing.T) {
	const hook = "name: a.example.com, clientConfig: {service: {name: s, namespace: ns}}, rules: [{operations: ['*']}]"
	const hookWant = "admissionReviewVersions: null, name: a.example.com, clientConfig: {service: {name: s, namespace: ns, port: 443}}, " +
		"rules: [{operations: ['*'], scope: '*'}], failurePolicy: Fail, matchPolicy: Equivalent, namespaceSelector: {}, " +
		"objectSelector: {}, sideEffects: null, timeoutSeconds: 10"
	const matched = "matchPolicy: Equivalent, namespaceSelector: {}, objectSelector: {}"
	kindtest.Defaults(t, []kindtest.Default{
		{"a validating webhook", &admissionregistrationv1.ValidatingWebhookConfiguration{}, "webhooks: [{" + hook + "}]",
			"metadata: {}\nwebhooks: [{" + hookWant + "}]"},
		{"a mutating webhook", &admissionregistrationv1.MutatingWebhookConfiguration{}, "webhooks: [{" + hook + "}]",
			"metadata: {}\nwebhooks: [{" + hookWant + ", reinvocationPolicy: Never}]"},
		{"a policy, whose selectors the library cannot do without", &admissionregistrationv1.ValidatingAdmissionPolicy{},
			"spec: {matchConstraints: {resourceRules: [{operations: ['*']}], excludeResourceRules: [{scope: Cluster}]}}",
			"metadata: {}\nspec: {failurePolicy: Fail, matchConstraints: {" + matched + ", resourceRules: [{operations: ['*'], scope: '*'}], excludeResourceRules: [{scope: Cluster}]}}\nstatus: {}"},
		{"a mutating policy", &admissionregistrationv1.MutatingAdmissionPolicy{}, "spec: {matchConstraints: {}}",
			"metadata: {}\nspec: {failurePolicy: Fail, matchConstraints: {" + matched + "}}"},
		{"a binding that narrows its policy", &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, "spec: {matchResources: {}}",
			"metadata: {}\nspec: {matchResources: {" + matched + "}}"},
		{"a binding that does not", &admissionregistrationv1.MutatingAdmissionPolicyBinding{}, "spec: {policyName: p}",
			"metadata: {}\nspec: {policyName: p}"},
	})
}
