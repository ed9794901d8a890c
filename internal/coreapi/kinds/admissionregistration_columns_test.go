package kinds_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestAdmissionTables(t *testing.T) {
	const hooks = "metadata: {name: a}\nwebhooks: [{name: a, clientConfig: {}}, {name: b, clientConfig: {}}]"
	bindings := []string{
		"metadata: {name: a}\nspec: {policyName: p}", "metadata: {name: b}\nspec: {policyName: p, paramRef: {name: x, namespace: ns}}",
		"metadata: {name: c}\nspec: {policyName: p, paramRef: {name: x}}", "metadata: {name: d}\nspec: {policyName: p, paramRef: {selector: {matchLabels: {a: b}}}}",
		"metadata: {name: e}\nspec: {policyName: p, paramRef: {}}",
	}
	kindtest.Table[admissionregistrationv1.ValidatingWebhookConfiguration](t, hooks)
	kindtest.Table[admissionregistrationv1.MutatingWebhookConfiguration](t, hooks)
	kindtest.Table[admissionregistrationv1.ValidatingAdmissionPolicy](t,
		"metadata: {name: a}\nspec: {validations: [{expression: 'true'}]}", "metadata: {name: b}\nspec: {paramKind: {apiVersion: example.com/v1, kind: Limit}}")
	kindtest.Table[admissionregistrationv1.MutatingAdmissionPolicy](t,
		"metadata: {name: a}\nspec: {mutations: [{patchType: JSONPatch}], paramKind: {apiVersion: v1, kind: ConfigMap}}")
	kindtest.Table[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, bindings...)
	kindtest.Table[admissionregistrationv1.MutatingAdmissionPolicyBinding](t, bindings...)
}
