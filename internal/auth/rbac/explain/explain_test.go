package explain

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func metaNamed(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func policy() Objects {
	role := func(verbs, resources, names []string, groups ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: verbs, Resources: resources, ResourceNames: names, APIGroups: groups}
	}
	user := func(kind, namespace, name string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: kind, Namespace: namespace, Name: name}}
	}
	return Objects{
		ClusterRoles: []rbacv1.ClusterRole{
			{ObjectMeta: metaNamed("", "reader"), Rules: []rbacv1.PolicyRule{role([]string{"get", "list"}, []string{"pods", "*/scale"}, nil, "")}},
			{ObjectMeta: metaNamed("", "all"), Rules: []rbacv1.PolicyRule{role([]string{"*"}, []string{"*"}, nil, "*")}},
			{ObjectMeta: metaNamed("", "prober"), Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz*"}}}},
		},
		ClusterRoleBindings: []rbacv1.ClusterRoleBinding{
			{ObjectMeta: metaNamed("", "ops"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "all"}, Subjects: user("Group", "", "ops")},
			{ObjectMeta: metaNamed("", "lost"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "gone"}, Subjects: user("User", "", "carol")},
			{ObjectMeta: metaNamed("", "probers"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "prober"}, Subjects: user("User", "", "alice")},
		},
		Roles: []rbacv1.Role{{ObjectMeta: metaNamed("a", "one"), Rules: []rbacv1.PolicyRule{role([]string{"delete"}, []string{"configmaps"}, []string{"x"}, "")}}},
		RoleBindings: []rbacv1.RoleBinding{
			{ObjectMeta: metaNamed("a", "readers"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"}, Subjects: user("User", "", "alice")},
			{ObjectMeta: metaNamed("a", "one"), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "one"}, Subjects: user("ServiceAccount", "", "bot")},
		},
	}
}

func TestExplain(t *testing.T) {
	for name, c := range map[string]struct {
		q       Query
		allowed bool
		first   Finding // Binding, and the first of Lacks
	}{
		"allowed by a role in the namespace": {Query{User: "alice", Verb: "get", Resource: "pods", Namespace: "a"}, true,
			Finding{Binding: "RoleBinding a/readers"}},
		"allowed by a wildcard subresource": {Query{User: "alice", Verb: "get", Resource: "deployments", Subresource: "scale", Namespace: "a"}, true,
			Finding{Binding: "RoleBinding a/readers"}},
		"allowed by a group": {Query{User: "eve", Groups: []string{"ops"}, Verb: "delete", Group: "apps", Resource: "deployments"}, true,
			Finding{Binding: "ClusterRoleBinding ops"}},
		"allowed to a service account of the binding's namespace": {Query{User: "system:serviceaccount:a:bot", Verb: "delete", Resource: "configmaps", Name: "x", Namespace: "a"}, true,
			Finding{Binding: "RoleBinding a/one"}},
		"allowed on a path": {Query{User: "alice", Verb: "get", Path: "/healthz/etcd"}, true, Finding{Binding: "ClusterRoleBinding probers"}},
		"nearest is what was granted to the user": {Query{User: "alice", Verb: "get", Resource: "pods", Namespace: "b"}, false,
			Finding{Binding: "RoleBinding a/readers", Lacks: []string{"namespace b"}}},
		"another name": {Query{User: "system:serviceaccount:a:bot", Verb: "delete", Resource: "configmaps", Name: "y", Namespace: "a"}, false,
			Finding{Binding: "RoleBinding a/one", Lacks: []string{"name y"}}},
		"granted to others": {Query{User: "bob", Verb: "delete", Resource: "pods", Namespace: "b"}, false,
			Finding{Binding: "ClusterRoleBinding ops", Lacks: []string{"user bob, or a group"}}},
	} {
		t.Run(name, func(t *testing.T) {
			allowed, findings := Explain(policy(), c.q)
			if allowed != c.allowed || len(findings) == 0 {
				t.Fatalf("Explain() = %t, %+v, want %t and at least one finding", allowed, findings, c.allowed)
			}
			f := findings[0]
			if f.Binding != c.first.Binding || allowed != (len(f.Lacks) == 0) {
				t.Errorf("first finding = %+v, want the binding %s, without Lacks only if allowed", f, c.first.Binding)
			}
			if len(c.first.Lacks) > 0 && !strings.HasPrefix(f.Lacks[0], c.first.Lacks[0]) {
				t.Errorf("Lacks of the first finding = %q, want the prefix %q", f.Lacks, c.first.Lacks[0])
			}
		})
	}
}

// Each missing right is listed in the finding that lacks it.
func TestExplainListsMissingRights(t *testing.T) {
	for name, c := range map[string]struct {
		q             Query
		binding, says string
	}{
		"a verb":              {Query{User: "alice", Verb: "delete", Resource: "pods", Namespace: "a"}, "RoleBinding a/readers", "verb delete (it has get, list)"},
		"a resource":          {Query{User: "alice", Verb: "get", Resource: "secrets", Namespace: "a"}, "RoleBinding a/readers", "resource secrets (it has pods, */scale)"},
		"a subresource":       {Query{User: "alice", Verb: "get", Resource: "pods", Subresource: "log", Namespace: "a"}, "RoleBinding a/readers", "resource pods/log"},
		"a group":             {Query{User: "alice", Verb: "get", Group: "metrics.k8s.io", Resource: "pods", Namespace: "a"}, "RoleBinding a/readers", `API group "metrics.k8s.io" (it has "")`},
		"a namespace":         {Query{User: "alice", Verb: "get", Resource: "pods", Namespace: "b"}, "RoleBinding a/readers", "namespace b (it is for namespace a)"},
		"the whole cluster":   {Query{User: "alice", Verb: "list", Resource: "pods"}, "RoleBinding a/readers", "the whole cluster (it is for namespace a)"},
		"a name":              {Query{User: "system:serviceaccount:a:bot", Verb: "delete", Resource: "configmaps", Name: "y", Namespace: "a"}, "RoleBinding a/one", "name y (it has x)"},
		"names, when none is": {Query{User: "system:serviceaccount:a:bot", Verb: "delete", Resource: "configmaps", Namespace: "a"}, "RoleBinding a/one", "for x alone"},
		"a subject":           {Query{User: "bob", Verb: "get", Resource: "pods", Namespace: "a"}, "RoleBinding a/readers", "user bob, or a group"},
		"the role itself":     {Query{User: "carol", Verb: "get", Resource: "nodes"}, "ClusterRoleBinding lost", "does not exist"},
		"a path":              {Query{User: "alice", Verb: "get", Path: "/metrics"}, "ClusterRoleBinding probers", "path /metrics"},
	} {
		allowed, findings := Explain(policy(), c.q)
		if allowed {
			t.Errorf("%s: Explain() = allowed, want not allowed", name)
		}
		if !slices.ContainsFunc(findings, func(f Finding) bool {
			return f.Binding == c.binding && strings.Contains(strings.Join(f.Lacks, "; "), c.says)
		}) {
			t.Errorf("%s: findings = %+v, want %s with %q", name, findings, c.binding, c.says)
		}
	}
}

func TestExplainWithoutNearMatches(t *testing.T) {
	p := policy()
	p.ClusterRoleBindings = nil
	if allowed, findings := Explain(p, Query{User: "bob", Verb: "create", Group: "x", Resource: "y"}); allowed || len(findings) != 0 {
		t.Errorf("Explain without near matches = %t %+v, want not allowed and no findings", allowed, findings)
	}
}
