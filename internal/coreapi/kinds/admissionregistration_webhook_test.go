package kinds_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestWebhooks(t *testing.T) {
	of := func(hook string) *admissionregistrationv1.ValidatingWebhookConfiguration {
		return kindtest.Decode[admissionregistrationv1.ValidatingWebhookConfiguration](t, "metadata: {name: a}\nwebhooks: [{"+hook+"}]")
	}
	const good = "name: a.example.com, sideEffects: None, admissionReviewVersions: [v1], "
	const client = "clientConfig: {url: 'https://a.example.com/check'}"
	rules := func(rule string) *admissionregistrationv1.ValidatingWebhookConfiguration {
		return of(good + client + ", rules: [{" + rule + "}]")
	}
	kindtest.Refuses(t, []kindtest.Create{
		{"an empty hook", of(""), []string{
			"webhooks[0].name: Required value",
			"webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
			"webhooks[0].clientConfig: Required value: exactly one of url or service is required",
			"webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1"}},
		{"a name that is not qualified", of("name: a, sideEffects: None, admissionReviewVersions: [v1], " + client),
			[]string{`webhooks[0].name: Invalid value: "a": should be a domain with at least three segments...`}},
		{"side effects", of("name: a.example.com, sideEffects: Some, admissionReviewVersions: [v1], " + client),
			[]string{`webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"`}},
		{"versions that the server does not speak, twice", of("name: a.example.com, sideEffects: None, admissionReviewVersions: [v2, v2], " + client), []string{
			`webhooks[0].admissionReviewVersions[1]: Invalid value: "v2": duplicate version`,
			`webhooks[0].admissionReviewVersions: Invalid value: ["v2","v2"]: must include at least one of v1, v1beta1`}},
		{"Secrets sent in clear text", of(good + "clientConfig: {url: 'http://a.example.com'}"),
			[]string{`webhooks[0].clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme...`}},
		{"two ways to reach it", of(good + "clientConfig: {url: 'https://a', service: {namespace: ns, name: s}}"),
			[]string{"webhooks[0].clientConfig: Required value: exactly one of url or service is required"}},
		{"a service without a namespace, at a relative path", of(good + "clientConfig: {service: {name: s, path: check}}"), []string{
			"webhooks[0].clientConfig.service.namespace: Required value",
			`webhooks[0].clientConfig.service.path: Invalid value: "check": must start with a '/'`}},
		{"a minute's patience", of(good + client + ", timeoutSeconds: 60"),
			[]string{"webhooks[0].timeoutSeconds: Invalid value: 60: the timeout value must be between 1 and 30 seconds"}},
		{"policies nobody knows", of(good + client + ", failurePolicy: Retry, matchPolicy: Loose"), []string{
			`webhooks[0].failurePolicy: Unsupported value: "Retry": supported values: "Fail", "Ignore"`,
			`webhooks[0].matchPolicy: Unsupported value: "Loose": supported values: "Equivalent", "Exact"`}},
		{"a rule about nothing", rules(""), []string{"webhooks[0].rules[0].operations: Required value",
			"webhooks[0].rules[0].apiGroups: Required value", "webhooks[0].rules[0].apiVersions: Required value",
			"webhooks[0].rules[0].resources: Required value"}},
		{"wildcards that are not alone", rules("apiGroups: ['*', a], apiVersions: ['*', v1], operations: ['*', CREATE], resources: ['*', pods]"), []string{
			`webhooks[0].rules[0].apiGroups: Invalid value: ["*","a"]: if '*' is present, must not specify other API groups`,
			`webhooks[0].rules[0].apiVersions: Invalid value: ["*","v1"]: if '*' is present, must not specify other API versions`,
			`webhooks[0].rules[0].operations: Invalid value: ["*","CREATE"]: if '*' is present, must not specify other operations`,
			`webhooks[0].rules[0].resources: Invalid value: ["*","pods"]: if '*' is present, must not specify other resources without subresources`}},
		{"subresources said twice", rules("apiGroups: [''], apiVersions: [v1], operations: [READ], resources: [pods/*, pods/log, '*/status', nodes/status], scope: All"), []string{
			`webhooks[0].rules[0].operations[0]: Unsupported value: "READ": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"`,
			`webhooks[0].rules[0].resources[1]: Invalid value: "pods/log": if 'pods/*' is present, must not specify pods/log`,
			`webhooks[0].rules[0].resources[3]: Invalid value: "nodes/status": if '*/status' is present, must not specify nodes/status`,
			`webhooks[0].rules[0].scope: Unsupported value: "All": supported values: "*", "Cluster", "Namespaced"`}},
		{"match conditions without name and expression, and twice", of(good + client + ", matchConditions: [{}, {name: a, expression: 'true'}, {name: a, expression: 'true'}]"), []string{
			"webhooks[0].matchConditions[0].name: Required value", "webhooks[0].matchConditions[0].expression: Required value",
			`webhooks[0].matchConditions[2].name: Duplicate value: "a"`}},
		{"match conditions that do not compile, or match by a number", of(good + client + ", matchConditions: [{name: a, expression: 'request.'}, {name: b, expression: '1'}]"), []string{
			"webhooks[0].matchConditions[0].expression: Invalid value: ...", `webhooks[0].matchConditions[1].expression: Invalid value: "1": must evaluate to bool...`}},
		{"a selector that cannot be read", of(good + client + ", namespaceSelector: {matchExpressions: [{key: a, operator: Near}]}"),
			[]string{`webhooks[0].namespaceSelector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator`}},
		{"a mutating hook that runs whenever it likes", kindtest.Decode[admissionregistrationv1.MutatingWebhookConfiguration](t,
			"metadata: {name: a}\nwebhooks: [{"+good+client+", reinvocationPolicy: Often}]"),
			[]string{`webhooks[0].reinvocationPolicy: Unsupported value: "Often": supported values: "IfNeeded", "Never"`}},
	})
}

func TestStoredInvalidWebhookCanBeUpdated(t *testing.T) {
	const hook = "{name: a.example.com, sideEffects: Some, admissionReviewVersions: [v0], clientConfig: {url: 'https://a'}}"
	stored := kindtest.Decode[admissionregistrationv1.MutatingWebhookConfiguration](t,
		"metadata: {name: a, resourceVersion: '1'}\nwebhooks: ["+hook+", "+hook+"]")
	next := stored.DeepCopy()
	next.Webhooks[0].TimeoutSeconds = ptr.To[int32](5)
	kindtest.Refused(t, kindtest.UpdateErrors(next, stored))
	if errs := kindtest.CreateErrors(next); len(errs) != 5 {
		t.Errorf("create with the faults of the stored webhook: errors = %v, want 5", errs)
	}
}
