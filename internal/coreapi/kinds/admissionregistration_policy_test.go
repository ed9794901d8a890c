package kinds_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

const someRules = "[{apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE], resources: [configmaps]}]"

func TestValidatingPolicies(t *testing.T) {
	of := func(spec string) *admissionregistrationv1.ValidatingAdmissionPolicy {
		return kindtest.Decode[admissionregistrationv1.ValidatingAdmissionPolicy](t, "metadata: {name: a}\nspec: {"+spec+"}")
	}
	const match = "matchConstraints: {resourceRules: " + someRules + "}, "
	const check = "validations: [{expression: 'true'}]"
	kindtest.Refuses(t, []kindtest.Create{
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
	// The policy has no defaults, as a client of etcd could store it. Validation requires the fields, because a policy without
	// them would break every request.
	bare := of(match + check)
	bare.Spec.MatchConstraints.NamespaceSelector = nil
	bare.Spec.MatchConstraints.ObjectSelector = nil
	bare.Spec.MatchConstraints.MatchPolicy = nil
	bare.Spec.FailurePolicy = nil
	kindtest.Refused(t, kindtest.CreateErrors(bare), "spec.failurePolicy: Required value", "spec.matchConstraints.matchPolicy: Required value",
		"spec.matchConstraints.namespaceSelector: Required value", "spec.matchConstraints.objectSelector: Required value")
}

func TestMutatingPolicies(t *testing.T) {
	of := func(rest string) *admissionregistrationv1.MutatingAdmissionPolicy {
		return kindtest.Decode[admissionregistrationv1.MutatingAdmissionPolicy](t,
			"metadata: {name: a}\nspec: {matchConstraints: {resourceRules: "+someRules+"}, "+rest+"}")
	}
	deletes := of("reinvocationPolicy: Never, mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", path: \"/a\"}]'}}]")
	deletes.Spec.MatchConstraints.ResourceRules[0].Operations = []admissionregistrationv1.OperationType{"DELETE"}
	kindtest.Refuses(t, []kindtest.Create{
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
		return kindtest.Decode[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, "metadata: {name: a}\nspec: {"+spec+"}")
	}
	kindtest.Refuses(t, []kindtest.Create{
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

// includes is new in 1.37. A replica of the previous version may run at the same time and would ignore the field, so it may not
// be written yet. Stored objects with the field are accepted.
func TestExpressionsOfNewerCELLibraryAreRejected(t *testing.T) {
	policy := func(expression, label string) *admissionregistrationv1.ValidatingAdmissionPolicy {
		return kindtest.Decode[admissionregistrationv1.ValidatingAdmissionPolicy](t, "metadata: {name: a, resourceVersion: '1', labels: {l: '"+label+"'}}\nspec: {matchConstraints: {resourceRules: "+
			someRules+"}, validations: [{expression: '"+expression+"'}]}")
	}
	const plain, newer, other = "true", "[1].includes(1)", "[2].includes(2)"
	undeclared := func(expression string) string {
		return `spec.validations[0].expression: Invalid value: "` + expression + `": compilation failed: ERROR: <input>:1:13: undeclared reference to 'includes'...`
	}
	created := policy(newer, "")
	created.ResourceVersion = ""
	kindtest.Refused(t, kindtest.CreateErrors(created), undeclared(newer))
	kindtest.Refused(t, kindtest.UpdateErrors(policy(newer, ""), policy(plain, "")), undeclared(newer))
	kindtest.Refused(t, kindtest.UpdateErrors(policy(newer, "changed"), policy(newer, "")))
	kindtest.Refused(t, kindtest.UpdateErrors(policy(other, ""), policy(newer, "")), undeclared(other))
}
