package kinds_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestRoles(t *testing.T) {
	role := func(rule string) *rbacv1.Role {
		return kindtest.Decode[rbacv1.Role](t, "metadata: {name: a, namespace: ns}\nrules: [{"+rule+"}]")
	}
	kindtest.Refuses(t, []kindtest.Create{
		{"a rule that grants nothing", role("apiGroups: [''], resources: [pods]"),
			[]string{"rules[0].verbs: Required value"}},
		{"no groups and no resources", role("verbs: [get]"), []string{
			"rules[0].apiGroups: Required value: resource rules must supply at least one api group",
			"rules[0].resources: Required value: resource rules must supply at least one resource"}},
		{"a URL in a namespace, and resources beside it", role("verbs: [get], apiGroups: [''], nonResourceURLs: [/metrics]"), []string{
			`rules[0].nonResourceURLs: Invalid value: ["/metrics"]: namespaced rules cannot apply to non-resource URLs`,
			`rules[0].nonResourceURLs: Invalid value: ["/metrics"]: rules cannot apply to both regular resources and non-resource URLs`}},
		{"a name that is a path", kindtest.Decode[rbacv1.ClusterRole](t, "metadata: {name: a/b}"),
			[]string{`metadata.name: Invalid value: "a/b": may not contain '/'`}},
		{"an aggregate of nothing", kindtest.Decode[rbacv1.ClusterRole](t, "metadata: {name: a}\naggregationRule: {}"), []string{
			"aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"}},
		{"an aggregate of a bad selector", kindtest.Decode[rbacv1.ClusterRole](t, "metadata: {name: a}\naggregationRule: {clusterRoleSelectors: [{matchLabels: {a b: c}}]}"),
			[]string{`aggregationRule.clusterRoleSelectors[0].matchLabels: Invalid value: "a b"...`, `aggregationRule.clusterRoleSelectors[0]: Invalid value: {"matchLabels":{"a b":"c"}}: invalid label selector.`}},
	})
}

func TestRoleBindings(t *testing.T) {
	of := func(rest string) *rbacv1.RoleBinding {
		return kindtest.Decode[rbacv1.RoleBinding](t, "metadata: {name: a, namespace: ns}\n"+rest)
	}
	cluster := func(rest string) *rbacv1.ClusterRoleBinding {
		return kindtest.Decode[rbacv1.ClusterRoleBinding](t, "metadata: {name: a}\n"+rest)
	}
	kindtest.Refuses(t, []kindtest.Create{
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

func TestRoleRefOfBindingIsImmutable(t *testing.T) {
	stored := kindtest.Decode[rbacv1.ClusterRoleBinding](t, "metadata: {name: a, resourceVersion: '1'}\nroleRef: {kind: ClusterRole, name: view}")
	next := stored.DeepCopy()
	next.RoleRef.Name = "cluster-admin"
	kindtest.Refused(t, kindtest.UpdateErrors(next, stored),
		`roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}: cannot change roleRef`)

	inNamespace := kindtest.Decode[rbacv1.RoleBinding](t, "metadata: {name: a, namespace: ns, resourceVersion: '1'}\nroleRef: {kind: Role, name: r}")
	widened := inNamespace.DeepCopy()
	widened.RoleRef.Kind = "ClusterRole"
	kindtest.Refused(t, kindtest.UpdateErrors(widened, inNamespace),
		`roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"r"}: cannot change roleRef`)
	widened.RoleRef, widened.Subjects = inNamespace.RoleRef, []rbacv1.Subject{{Kind: "User", Name: "u", APIGroup: rbacv1.GroupName}}
	kindtest.Refused(t, kindtest.UpdateErrors(widened, inNamespace))
}
