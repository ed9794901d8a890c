package validate_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"
)

const someRules = "[{apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE], resources: [configmaps]}]"

func TestWebhooks(t *testing.T) {
	of := func(hook string) *admissionregistrationv1.ValidatingWebhookConfiguration {
		return decode[admissionregistrationv1.ValidatingWebhookConfiguration](t, "metadata: {name: a}\nwebhooks: [{"+hook+"}]")
	}
	const good = "name: a.example.com, sideEffects: None, admissionReviewVersions: [v1], "
	const client = "clientConfig: {url: 'https://a.example.com/check'}"
	rules := func(rule string) *admissionregistrationv1.ValidatingWebhookConfiguration {
		return of(good + client + ", rules: [{" + rule + "}]")
	}
	refuses(t, []create{
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
		{"a mutating hook that runs whenever it likes", decode[admissionregistrationv1.MutatingWebhookConfiguration](t,
			"metadata: {name: a}\nwebhooks: [{"+good+client+", reinvocationPolicy: Often}]"),
			[]string{`webhooks[0].reinvocationPolicy: Unsupported value: "Often": supported values: "IfNeeded", "Never"`}},
	})
}

func TestAnOldWebhookCanStillBeEdited(t *testing.T) {
	const hook = "{name: a.example.com, sideEffects: Some, admissionReviewVersions: [v0], clientConfig: {url: 'https://a'}}"
	stored := decode[admissionregistrationv1.MutatingWebhookConfiguration](t,
		"metadata: {name: a, resourceVersion: '1'}\nwebhooks: ["+hook+", "+hook+"]")
	next := stored.DeepCopy()
	next.Webhooks[0].TimeoutSeconds = ptr.To[int32](5)
	refused(t, updateErrors(next, stored))
	if errs := createErrors(next); len(errs) != 5 {
		t.Errorf("a new one with the same faults: %v", errs)
	}
}

func TestValidatingPolicies(t *testing.T) {
	of := func(spec string) *admissionregistrationv1.ValidatingAdmissionPolicy {
		return decode[admissionregistrationv1.ValidatingAdmissionPolicy](t, "metadata: {name: a}\nspec: {"+spec+"}")
	}
	const match = "matchConstraints: {resourceRules: " + someRules + "}, "
	const check = "validations: [{expression: 'true'}]"
	refuses(t, []create{
		{"no constraints and nothing to check", of(""), []string{"spec.matchConstraints: Required value",
			"spec.validations: Required value: validations or auditAnnotations must contain at least one item",
			"spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item"}},
		{"constraints without a rule", of("matchConstraints: {}, " + check), []string{"spec.matchConstraints.resourceRules: Required value"}},
		{"a kind of parameter without a version", of(match + check + ", paramKind: {apiVersion: example.com/, kind: A B}"), []string{
			`spec.paramKind.apiVersion: Invalid value: "example.com/": version must be specified`,
			`spec.paramKind.kind: Invalid value: "A B": may have mixed case, but should otherwise match...`}},
		{"an expression of several lines", of(match + `validations: [{expression: "true ||\nfalse"}]`), nil},
		{"expressions that say nothing, or something else", of(match + "validations: [{expression: 'object.metadata.nam('}, {expression: '1'}, {expression: vanished}, " +
			"{expression: 'true', messageExpression: 'false'}, {expression: 'params.x == 1'}], matchConditions: [{name: a, expression: '2'}], variables: [{name: v, expression: '1 +'}]"), []string{
			"spec.validations[0].expression: Invalid value: ...", `spec.validations[1].expression: Invalid value: "1": must evaluate to bool...`,
			`spec.validations[2].expression: Invalid value: "vanished": compilation failed: ERROR: <input>:1:1: undeclared reference to 'vanished'...`,
			`spec.validations[3].messageExpression: Invalid value: "false": must evaluate to string...`,
			"spec.validations[4].expression: Invalid value: ...", `spec.matchConditions[0].expression: Invalid value: "2": must evaluate to bool...`,
			"spec.variables[0].expression: Invalid value: ..."}},
		{"a variable that is used, and one that comes too late", of(match + "variables: [{name: a, expression: '1'}, {name: b, expression: 'variables.c + 1'}, {name: c, expression: '1'}], validations: [{expression: 'variables.a == 1'}]"),
			[]string{"spec.variables[1].expression: Invalid value: ..."}},
		{"no expression, and a reason nobody can act on", of(match + "validations: [{expression: ' ', reason: Conflict}]"), []string{
			"spec.validations[0].expression: Required value: expression is not specified",
			`spec.validations[0].reason: Unsupported value: "Conflict"...`}},
		{"a variable that is no identifier", of(match + check + ", variables: [{name: a-b, expression: '1'}, {expression: ''}]"), []string{
			`spec.variables[0].name: Invalid value: "a-b": must be a valid CEL identifier`,
			"spec.variables[1].name: Required value: name is not specified",
			"spec.variables[1].expression: Required value: expression is not specified"}},
		{"an audit annotation twice, with nothing to say", of(match + "auditAnnotations: [{key: k, valueExpression: 'string(1)'}, {key: k}]"), []string{
			`spec.auditAnnotations[1].key: Duplicate value: "k"`,
			"spec.auditAnnotations[1].valueExpression: Required value: valueExpression is not specified"}},
		{"a resource name twice", of("matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [pods], resourceNames: [a, a, b/c]}]}, " + check), []string{
			`spec.matchConstraints.resourceRules[0].resourceNames[1]: Duplicate value: "a"`,
			`spec.matchConstraints.resourceRules[0].resourceNames[2]: Invalid value: "b/c": may not contain '/'`}},
	})
	// Undefaulted, as a client of the library could write it into storage: the gap that breaks every request.
	bare := of(match + check)
	bare.Spec.MatchConstraints.NamespaceSelector = nil
	bare.Spec.MatchConstraints.ObjectSelector = nil
	bare.Spec.MatchConstraints.MatchPolicy = nil
	bare.Spec.FailurePolicy = nil
	refused(t, createErrors(bare), "spec.failurePolicy: Required value", "spec.matchConstraints.matchPolicy: Required value",
		"spec.matchConstraints.namespaceSelector: Required value", "spec.matchConstraints.objectSelector: Required value")
}

func TestMutatingPolicies(t *testing.T) {
	of := func(rest string) *admissionregistrationv1.MutatingAdmissionPolicy {
		return decode[admissionregistrationv1.MutatingAdmissionPolicy](t,
			"metadata: {name: a}\nspec: {matchConstraints: {resourceRules: "+someRules+"}, "+rest+"}")
	}
	deletes := of("reinvocationPolicy: Never, mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", path: \"/a\"}]'}}]")
	deletes.Spec.MatchConstraints.ResourceRules[0].Operations = []admissionregistrationv1.OperationType{"DELETE"}
	refuses(t, []create{
		{"no mutations and no reinvocation policy", of(""), []string{
			"spec.mutations: Required value: mutations must contain at least one item", "spec.reinvocationPolicy: Required value"}},
		{"the expression of the other type", of("reinvocationPolicy: IfNeeded, mutations: [{patchType: JSONPatch, applyConfiguration: {expression: a}}, " +
			"{patchType: ApplyConfiguration, applyConfiguration: {expression: ''}, jsonPatch: {expression: a}}, {}]"), []string{
			"spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
			"spec.mutations[0].applyConfiguration: Forbidden: must not be specified when patchType is JSONPatch",
			"spec.mutations[1].applyConfiguration.expression: Required value",
			"spec.mutations[1].jsonPatch: Forbidden: must not be specified when patchType is ApplyConfiguration",
			"spec.mutations[2].patchType: Required value"}},
		{"mutating what is deleted", deletes, []string{
			`spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"`}},
	})
}

func TestPolicyBindings(t *testing.T) {
	of := func(spec string) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
		return decode[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, "metadata: {name: a}\nspec: {"+spec+"}")
	}
	refuses(t, []create{
		{"no policy and nothing to do", of(""), []string{"spec.policyName: Required value",
			"spec.validationActions: Required value"}},
		{"denying and warning, twice, and shouting", of("policyName: p, validationActions: [Deny, Warn, Deny, Shout]"), []string{
			`spec.validationActions[2]: Duplicate value: "Deny"`,
			`spec.validationActions[3]: Unsupported value: "Shout": supported values: "Audit", "Deny", "Warn"`,
			`spec.validationActions: Invalid value: ["Deny","Warn","Deny","Shout"]: must not contain both Deny and Warn...`}},
		{"parameters by name and by selector", of("policyName: p, validationActions: [Audit], paramRef: {name: a, selector: {}, parameterNotFoundAction: Deny}"), []string{
			"spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
			"spec.paramRef.selector: Forbidden: name and selector are mutually exclusive"}},
		{"parameters by neither, and no word on what if there are none", of("policyName: p, validationActions: [Audit], paramRef: {}"), []string{
			"spec.paramRef: Required value: one of name or selector must be specified",
			"spec.paramRef.parameterNotFoundAction: Required value"}},
	})
}

// includes came with 1.37. The version before, which may run beside this one, would not know what it means: it may not be
// written yet, and what is stored with it is not refused.
func TestExpressionsOfANewerLibrary(t *testing.T) {
	policy := func(expression, label string) *admissionregistrationv1.ValidatingAdmissionPolicy {
		return decode[admissionregistrationv1.ValidatingAdmissionPolicy](t, "metadata: {name: a, resourceVersion: '1', labels: {l: '"+label+"'}}\nspec: {matchConstraints: {resourceRules: "+
			someRules+"}, validations: [{expression: '"+expression+"'}]}")
	}
	const plain, newer, other = "true", "[1].includes(1)", "[2].includes(2)"
	undeclared := func(expression string) string {
		return `spec.validations[0].expression: Invalid value: "` + expression + `": compilation failed: ERROR: <input>:1:13: undeclared reference to 'includes'...`
	}
	created := policy(newer, "")
	created.ResourceVersion = ""
	refused(t, createErrors(created), undeclared(newer))
	refused(t, updateErrors(policy(newer, ""), policy(plain, "")), undeclared(newer))
	refused(t, updateErrors(policy(newer, "changed"), policy(newer, "")))
	refused(t, updateErrors(policy(other, ""), policy(newer, "")), undeclared(other))
}
