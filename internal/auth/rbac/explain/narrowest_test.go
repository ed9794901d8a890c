package explain

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

func TestNarrowestRole(t *testing.T) {
	rules := func(verbs, resources []string, names ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: verbs, APIGroups: []string{""}, Resources: resources, ResourceNames: names}}
	}
	read := []string{"get", "list"}
	clusterRole := func(name string, rules []rbacv1.PolicyRule) rbacv1.ClusterRole {
		return rbacv1.ClusterRole{ObjectMeta: metaNamed("", name), Rules: rules}
	}
	role := func(namespace, name string, rules []rbacv1.PolicyRule) rbacv1.Role {
		return rbacv1.Role{ObjectMeta: metaNamed(namespace, name), Rules: rules}
	}
	p := Objects{
		ClusterRoles: []rbacv1.ClusterRole{
			clusterRole("everything", []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}),
			clusterRole("wide", rules(read, []string{"pods", "services", "secrets"})),
			clusterRole("pods", rules(read, []string{"pods"})),
			clusterRole("any-verb", rules([]string{"*"}, []string{"pods"})),
			clusterRole("system:pods", rules([]string{"get"}, []string{"pods"})),
			clusterRole("metrics", []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}}),
		},
		Roles: []rbacv1.Role{
			role("dev", "pods", rules(read, []string{"pods"})),
			role("dev", "web", rules(read, []string{"pods"}, "web")),
			role("other", "get", rules([]string{"get"}, []string{"pods"})),
		},
	}
	for _, c := range []struct {
		situation  string
		q          Query
		kind, name string
	}{
		{"Role in the namespace, before an equal ClusterRole", Query{Verb: "get", Resource: "pods", Namespace: "dev"}, "Role", "pods"},
		{"Role for the name", Query{Verb: "get", Resource: "pods", Name: "web", Namespace: "dev"}, "Role", "web"},
		{"namespace without Roles", Query{Verb: "get", Resource: "pods", Namespace: "prod"}, "ClusterRole", "pods"},
		{"whole cluster", Query{Verb: "list", Resource: "pods"}, "ClusterRole", "pods"},
		{"wildcard only", Query{Verb: "delete", Resource: "pods", Namespace: "dev"}, "ClusterRole", "any-verb"},
		{"wider role only", Query{Verb: "get", Resource: "secrets", Namespace: "dev"}, "ClusterRole", "wide"},
		{"path", Query{Verb: "get", Path: "/metrics"}, "ClusterRole", "metrics"},
		{"only a role that allows everything", Query{Verb: "delete", Resource: "secrets"}, "", ""},
	} {
		if kind, name := NarrowestRole(p, c.q); kind != c.kind || name != c.name {
			t.Errorf("%s: NarrowestRole(%v) = %q, %q; want %q, %q", c.situation, c.q, kind, name, c.kind, c.name)
		}
	}
}
