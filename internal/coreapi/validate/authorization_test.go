package validate_test

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestRoles(t *testing.T) {
	role := func(rule string) *rbacv1.Role {
		return decode[rbacv1.Role](t, "metadata: {name: a, namespace: ns}\nrules: [{"+rule+"}]")
	}
	refuses(t, []create{
		{"a rule that grants nothing", role("apiGroups: [''], resources: [pods]"),
			[]string{"rules[0].verbs: Required value"}},
		{"no groups and no resources", role("verbs: [get]"), []string{
			"rules[0].apiGroups: Required value: resource rules must supply at least one api group",
			"rules[0].resources: Required value: resource rules must supply at least one resource"}},
		{"a URL in a namespace, and resources beside it", role("verbs: [get], apiGroups: [''], nonResourceURLs: [/metrics]"), []string{
			`rules[0].nonResourceURLs: Invalid value: ["/metrics"]: namespaced rules cannot apply to non-resource URLs`,
			`rules[0].nonResourceURLs: Invalid value: ["/metrics"]: rules cannot apply to both regular resources and non-resource URLs`}},
		{"a name that is a path", decode[rbacv1.ClusterRole](t, "metadata: {name: a/b}"),
			[]string{`metadata.name: Invalid value: "a/b": may not contain '/'`}},
		{"an aggregate of nothing", decode[rbacv1.ClusterRole](t, "metadata: {name: a}\naggregationRule: {}"), []string{
			"aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"}},
		{"an aggregate of a bad selector", decode[rbacv1.ClusterRole](t, "metadata: {name: a}\naggregationRule: {clusterRoleSelectors: [{matchLabels: {a b: c}}]}"),
			[]string{`aggregationRule.clusterRoleSelectors[0].matchLabels: Invalid value: "a b"...`, `aggregationRule.clusterRoleSelectors[0]: Invalid value: {"matchLabels":{"a b":"c"}}: invalid label selector.`}},
	})
}

func TestRoleBindings(t *testing.T) {
	of := func(rest string) *rbacv1.RoleBinding {
		return decode[rbacv1.RoleBinding](t, "metadata: {name: a, namespace: ns}\n"+rest)
	}
	cluster := func(rest string) *rbacv1.ClusterRoleBinding {
		return decode[rbacv1.ClusterRoleBinding](t, "metadata: {name: a}\n"+rest)
	}
	refuses(t, []create{
		{"no role", of(""), []string{`roleRef.kind: Unsupported value: "": supported values: "Role", "ClusterRole"`,
			"roleRef.name: Required value"}},
		{"a role for the whole cluster", cluster("roleRef: {kind: Role, name: r}"),
			[]string{`roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"`}},
		{"a role of another group", of("roleRef: {apiGroup: example.com, kind: Role, name: r}"),
			[]string{`roleRef.apiGroup: Unsupported value: "example.com": supported values: "rbac.authorization.k8s.io"`}},
		{"a service account of no namespace", cluster("roleRef: {kind: ClusterRole, name: r}\nsubjects: [{kind: ServiceAccount, name: s}]"),
			[]string{"subjects[0].namespace: Required value"}},
		{"subjects of unknown kind, without name, of a wrong group", of("roleRef: {kind: Role, name: r}\nsubjects: " +
			"[{kind: Robot, name: x}, {kind: User}, {kind: Group, name: g, apiGroup: v1}]"), []string{
			`subjects[0].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"`,
			"subjects[1].name: Required value",
			`subjects[2].apiGroup: Unsupported value: "v1": supported values: "rbac.authorization.k8s.io"`}},
	})
}

func TestTheRoleOfABindingStays(t *testing.T) {
	stored := decode[rbacv1.ClusterRoleBinding](t, "metadata: {name: a, resourceVersion: '1'}\nroleRef: {kind: ClusterRole, name: view}")
	next := stored.DeepCopy()
	next.RoleRef.Name = "cluster-admin"
	refused(t, updateErrors(next, stored),
		`roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}: cannot change roleRef`)

	inNamespace := decode[rbacv1.RoleBinding](t, "metadata: {name: a, namespace: ns, resourceVersion: '1'}\nroleRef: {kind: Role, name: r}")
	widened := inNamespace.DeepCopy()
	widened.RoleRef.Kind = "ClusterRole"
	refused(t, updateErrors(widened, inNamespace),
		`roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"r"}: cannot change roleRef`)
	widened.RoleRef, widened.Subjects = inNamespace.RoleRef, []rbacv1.Subject{{Kind: "User", Name: "u", APIGroup: rbacv1.GroupName}}
	refused(t, updateErrors(widened, inNamespace))
}

func TestLeases(t *testing.T) {
	of := func(spec string) *coordinationv1.Lease {
		return decode[coordinationv1.Lease](t, "metadata: {name: a, namespace: ns}\nspec: {"+spec+"}")
	}
	refuses(t, []create{
		{"a lease of no time", of("leaseDurationSeconds: 0, leaseTransitions: -1"), []string{
			"spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
			"spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"}},
		{"a strategy that nobody has", of("strategy: Loudest"),
			[]string{`spec.strategy: Unsupported value: "Loudest": supported values: "OldestEmulationVersion"`}},
		{"a strategy of one's own", of("strategy: example.com/loudest, preferredHolder: me"), nil},
		{"a preferred holder without a strategy", of("preferredHolder: me"),
			[]string{"spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined"}},
	})
}

func TestFlowSchemas(t *testing.T) {
	of := func(spec string) *flowcontrolv1.FlowSchema {
		return decode[flowcontrolv1.FlowSchema](t, "metadata: {name: a}\nspec: {"+spec+"}")
	}
	rule := func(rest string) *flowcontrolv1.FlowSchema {
		return of("priorityLevelConfiguration: {name: p}, rules: [{" + rest + "}]")
	}
	const anyone = "subjects: [{kind: Group, group: {name: g}}], "
	refuses(t, []create{
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
		{"a catch-all that does not catch all", decode[flowcontrolv1.FlowSchema](t, "metadata: {name: catch-all}\nspec: {priorityLevelConfiguration: {name: p}}"),
			[]string{`spec: Invalid value: {...`}},
	})
}

func TestPriorityLevels(t *testing.T) {
	of := func(spec string) *flowcontrolv1.PriorityLevelConfiguration {
		return decode[flowcontrolv1.PriorityLevelConfiguration](t, "metadata: {name: a}\nspec: {"+spec+"}")
	}
	refuses(t, []create{
		{"another exempt level", of("type: Exempt, exempt: {}"),
			[]string{`spec.type: Invalid value: "Exempt": type must be 'Exempt' if and only if name is 'exempt'`}},
		{"a limited level without limits", of("type: Limited, exempt: {}"), []string{
			"spec.limited: Required value",
			"spec.exempt: Forbidden"}},
		{"an unknown type", of("type: Free"), []string{`spec.type: Unsupported value: "Free": supported values: "Exempt", "Limited"`}},
		{"queues for what is rejected", of("type: Limited, limited: {limitResponse: {type: Reject, queuing: {}}}"),
			[]string{"spec.limited.limitResponse.queuing: Forbidden: must be nil if limited.limitResponse.type is not Limited"}},
		{"no queues for what waits", of("type: Limited, limited: {limitResponse: {type: Queue}}"),
			[]string{"spec.limited.limitResponse.queuing: Required value"}},
		{"a hand larger than the deck", of("type: Limited, limited: {limitResponse: {type: Queue, queuing: {queues: 4, handSize: 5}}}"),
			[]string{"spec.limited.limitResponse.queuing.handSize: Invalid value: 5: should not be greater than queues (4)"}},
		{"a hand that no hash can deal", of("type: Limited, limited: {limitResponse: {type: Queue, queuing: {queues: 512, handSize: 8}}}"), []string{
			"spec.limited.limitResponse.queuing.handSize: Invalid value: 8: required entropy bits of deckSize 512 and handSize 8 should not be greater than 60"}},
		{"more lent than there is, a debt of shares", of("type: Limited, limited: {nominalConcurrencyShares: -1, lendablePercent: 101, borrowingLimitPercent: -1, limitResponse: {type: Reject}}"), []string{
			"spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
			"spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
			"spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer"}},
		{"more queues than memory", of("type: Limited, limited: {limitResponse: {type: Queue, queuing: {queues: 10000001, queueLengthLimit: -1}}}"), []string{
			"spec.limited.limitResponse.queuing.queues: Invalid value: 10000001: must not be greater than 10000000",
			"spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value: -1: must be positive"}},
	})
	stored := of("type: Limited, limited: {limitResponse: {type: Reject}}")
	stored.ResourceVersion = "1"
	next := stored.DeepCopy()
	next.Status.Conditions = []flowcontrolv1.PriorityLevelConfigurationCondition{{Type: "A"}, {Type: "A"}, {}}
	refused(t, statusErrors(next, stored), `status.conditions[1].type: Duplicate value: "A"`,
		"status.conditions[2].type: Required value: must not be empty")
}
