package kinds_test

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestFlowSchemas(t *testing.T) {
	of := func(spec string) *flowcontrolv1.FlowSchema {
		return kindtest.Decode[flowcontrolv1.FlowSchema](t, "metadata: {name: a}\nspec: {"+spec+"}")
	}
	rule := func(rest string) *flowcontrolv1.FlowSchema {
		return of("priorityLevelConfiguration: {name: p}, rules: [{" + rest + "}]")
	}
	const anyone = "subjects: [{kind: Group, group: {name: g}}], "
	kindtest.Refuses(t, []kindtest.Create{
		{"no priority level, out of range", of("matchingPrecedence: 10001"), []string{
			"spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000",
			"spec.priorityLevelConfiguration.name: Required value: must reference a priority level"}},
		{"pushing in before the exempt", of("priorityLevelConfiguration: {name: p}, matchingPrecedence: 1"),
			[]string{"spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1"}},
		{"distinguished by the moon", of("priorityLevelConfiguration: {name: p}, distinguisherMethod: {type: ByMoon}"),
			[]string{`spec.distinguisherMethod.type: Unsupported value: "ByMoon": supported values: "ByNamespace", "ByUser"`}},
		{"nobody and nothing", rule(""), []string{
			"spec.rules[0].subjects: Required value: subjects must contain at least one value",
			"spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty"}},
		{"a user that is a group", rule("subjects: [{kind: User, group: {name: g}}], nonResourceRules: [{verbs: [get], nonResourceURLs: ['*']}]"), []string{
			"spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'",
			"spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'"}},
		{"a subject of unknown kind", rule("subjects: [{kind: Robot}], nonResourceRules: [{verbs: [get], nonResourceURLs: ['*']}]"),
			[]string{`spec.rules[0].subjects[0].kind: Unsupported value: "Robot": supported values: "Group", "ServiceAccount", "User"`}},
		{"a service account of no namespace", rule("subjects: [{kind: ServiceAccount, serviceAccount: {name: s}}], nonResourceRules: [{verbs: [get], nonResourceURLs: ['*']}]"),
			[]string{"spec.rules[0].subjects[0].serviceAccount.namespace: Required value: must specify namespace for service account"}},
		{"URLs that are none", rule(anyone + "nonResourceRules: [{verbs: ['*', get], nonResourceURLs: [healthz, /a//b, /a/*/b, '/a b', '']}]"), []string{
			`spec.rules[0].nonResourceRules[0].verbs: Invalid value: ["*","get"]: if '*' is present, must not specify other verbs`,
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "healthz": must start with slash`,
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[1]: Invalid value: "/a//b": must not contain double slash`,
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[2]: Invalid value: "/a/*/b": wildcard can only do suffix matching`,
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[3]: Invalid value: "/a b": must not contain white-space`,
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[4]: Invalid value: "": must not be empty`}},
		{"resources of no namespace, by an unknown verb", rule(anyone + "resourceRules: [{verbs: [read], apiGroups: ['*', a], resources: [pods]}]"), []string{
			`spec.rules[0].resourceRules[0].verbs: Unsupported value: ["read"]...`,
			`spec.rules[0].resourceRules[0].apiGroups: Invalid value: ["*","a"]: if '*' is present, must not specify other api groups`,
			"spec.rules[0].resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace"}},
		{"a namespace that is none", rule(anyone + "resourceRules: [{verbs: [get], apiGroups: [''], resources: [pods], namespaces: [A]}]"), []string{
			`spec.rules[0].resourceRules[0].namespaces[0]: Invalid value: "A": each member of this list must be '*' or a DNS-1123 label; ...`}},
		{"a catch-all that does not catch all", kindtest.Decode[flowcontrolv1.FlowSchema](t, "metadata: {name: catch-all}\nspec: {priorityLevelConfiguration: {name: p}}"),
			[]string{`spec: Invalid value: {...`}},
	})
}
