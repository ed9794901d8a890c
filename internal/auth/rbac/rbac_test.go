package rbac

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/zap"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-helpers/auth/rbac/validation"
)

func loaded(p Policy) *RBAC {
	r := New(zap.NewNop())
	r.Load(p)
	return r
}

func subjects(kind string, names ...string) []rbacv1.Subject {
	var out []rbacv1.Subject
	for _, n := range names {
		out = append(out, rbacv1.Subject{Kind: kind, Name: n})
	}
	return out
}

func clusterBinding(name, role string, to ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   to,
	}
}

func binding(namespace, name, kind, role string, to ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   to,
	}
}

func nsRole(namespace, name string, rules ...ruleBuilder) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: clusterRole(name, rules...).Rules}
}

func person(name string, groups ...string) *user.DefaultInfo {
	return &user.DefaultInfo{Name: name, Groups: groups}
}

func on(verb, group, resource string, more ...func(*authorizer.AttributesRecord)) authorizer.AttributesRecord {
	a := authorizer.AttributesRecord{Verb: verb, APIGroup: group, ResourceRequest: true}
	a.Resource, a.Subresource, _ = strings.Cut(resource, "/")
	for _, m := range more {
		m(&a)
	}
	return a
}

func in(namespace string) func(*authorizer.AttributesRecord) {
	return func(a *authorizer.AttributesRecord) { a.Namespace = namespace }
}

func named(name string) func(*authorizer.AttributesRecord) {
	return func(a *authorizer.AttributesRecord) { a.Name = name }
}

func url(verb, path string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{Verb: verb, Path: path}
}

func TestDecisions(t *testing.T) {
	p := Policy{
		ClusterRoles: []*rbacv1.ClusterRole{
			clusterRole("reader", may("get", "list").inGroup("", "pods", "pods/log")),
			clusterRole("scaler", may("update").inGroup("*", "*/scale")),
			clusterRole("one-map", may("get", "list", "watch").inGroup("", "configmaps").named("settings")),
			clusterRole("paths", may("get").urls("/metrics", "/debug/*"), may("*").urls("/own/**")),
			clusterRole("everything", may("*").inGroup("*", "*")),
		},
		ClusterRoleBindings: []*rbacv1.ClusterRoleBinding{
			clusterBinding("readers", "reader", subjects("Group", "dev")...),
			clusterBinding("b-scalers", "scaler", subjects("User", "alice")...),
			clusterBinding("settings", "one-map", subjects("User", "alice")...),
			clusterBinding("paths", "paths", subjects("User", "alice")...),
			clusterBinding("dangling", "nowhere", subjects("User", "dora")...),
			clusterBinding("no-namespace", "everything", rbacv1.Subject{Kind: "ServiceAccount", Name: "robot"}),
			clusterBinding("robot", "reader", rbacv1.Subject{Kind: "ServiceAccount", Name: "robot", Namespace: "ns"}),
		},
		Roles: []*rbacv1.Role{nsRole("ns", "writer", may("create").inGroup("", "pods"))},
		RoleBindings: []*rbacv1.RoleBinding{
			binding("ns", "writers", "Role", "writer", subjects("User", "bob")...),
			binding("ns", "all", "ClusterRole", "everything", subjects("User", "carol")...),
			binding("ns", "dangling", "Role", "gone", subjects("User", "dora")...),
			binding("ns", "local-robot", "Role", "writer", rbacv1.Subject{Kind: "ServiceAccount", Name: "local"}),
			binding("ns", "wrong-kind", "Widget", "x", subjects("User", "erin")...),
		},
	}
	r := loaded(p)
	tests := []struct {
		name   string
		who    *user.DefaultInfo
		what   authorizer.AttributesRecord
		allow  bool
		reason string
	}{
		{"by group", person("zoe", "ops", "dev"), on("get", "", "pods"), true,
			`RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to Group "dev"`},
		{"a subresource that is listed", person("zoe", "dev"), on("get", "", "pods/log"), true, ""},
		{"a subresource that is not", person("zoe", "dev"), on("get", "", "pods/exec"), false, ""},
		{"another verb", person("zoe", "dev"), on("delete", "", "pods"), false, ""},
		{"another API group", person("zoe", "dev"), on("get", "metrics.k8s.io", "pods"), false, ""},
		{"a group's name as a user", person("dev"), on("get", "", "pods"), false, ""},
		{"a subresource of anything", person("alice"), on("update", "apps", "deployments/scale"), true,
			`RBAC: allowed by ClusterRoleBinding "b-scalers" of ClusterRole "scaler" to User "alice"`},
		{"the resource itself is not its subresource", person("alice"), on("update", "apps", "deployments"), false, ""},
		{"one name", person("alice"), on("get", "", "configmaps", named("settings")), true, ""},
		{"another name", person("alice"), on("get", "", "configmaps", named("other")), false, ""},
		{"list of one name by field selector", person("alice"), on("list", "", "configmaps", named("settings"), in("x")), true, ""},
		{"list of all names", person("alice"), on("list", "", "configmaps", in("x")), false, ""},
		{"a path", person("alice"), url("get", "/metrics"), true, ""},
		{"below a path", person("alice"), url("get", "/metrics/slis"), false, ""},
		{"below a prefix", person("alice"), url("get", "/debug/pprof"), true, ""},
		{"the prefix without its slash", person("alice"), url("get", "/debug"), false, ""},
		{"two stars are one", person("alice"), url("post", "/own/x/y"), true, ""},
		{"in the namespace", person("bob"), on("create", "", "pods", in("ns")), true,
			`RBAC: allowed by RoleBinding "writers/ns" of Role "writer" to User "bob"`},
		{"in another namespace", person("bob"), on("create", "", "pods", in("other")), false, ""},
		{"cluster-wide with a namespaced right", person("bob"), on("create", "", "pods"), false, ""},
		{"a ClusterRole in one namespace", person("carol"), on("delete", "apps", "deployments", in("ns")), true, ""},
		{"and not outside", person("carol"), on("delete", "apps", "deployments"), false, ""},
		{"service account", person("system:serviceaccount:ns:robot"), on("get", "", "pods"), true,
			`RBAC: allowed by ClusterRoleBinding "robot" of ClusterRole "reader" to ServiceAccount "robot/ns"`},
		{"service account without a namespace in a cluster binding is nobody", person("system:serviceaccount::robot"), on("delete", "", "pods"), false, ""},
		{"service account of the binding's namespace", person("system:serviceaccount:ns:local"), on("create", "", "pods", in("ns")), true,
			`RBAC: allowed by RoleBinding "local-robot/ns" of Role "writer" to ServiceAccount "local/ns"`},
		{"roles that do not exist are named", person("dora"), on("get", "", "pods", in("ns")), false,
			`RBAC: [clusterrole.rbac.authorization.k8s.io "nowhere" not found, role.rbac.authorization.k8s.io "gone" not found]`},
		{"a kind of role that does not exist", person("erin"), on("get", "", "pods", in("ns")), false,
			`RBAC: unsupported role reference kind: "Widget"`},
		{"system:masters", person("x", "system:masters"), on("anything", "g", "r"), true, ""},
		{"system:masters as a user name", person("system:masters"), on("get", "", "pods"), false, ""},
		{"nobody", person("nobody"), on("get", "", "pods"), false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.what.User = tt.who
			decision, reason, err := r.Authorize(t.Context(), tt.what)
			if err != nil || (decision == authorizer.DecisionAllow) != tt.allow || decision == authorizer.DecisionDeny {
				t.Fatalf("Authorize() = %v, %q, %v, want allowed = %t", decision, reason, err, tt.allow)
			}
			if tt.reason != "" && reason != tt.reason {
				t.Fatalf("reason = %q, want %q", reason, tt.reason)
			}
		})
	}
}

// An access review may name a resource with a slash. Kubernetes joins it with the subresource and compares the
// whole name. A wildcard for a subresource matches only an explicit subresource.
func TestResourceNameWithSlashIsComparedWhole(t *testing.T) {
	tests := []struct {
		rule, resource, subresource string
		want                        bool
	}{
		{"pods/log", "pods/log", "", true},
		{"pods/log", "pods", "log", true},
		{"a/b/c", "a/b", "c", true},
		{"a/b/c", "a", "b/c", true},
		{"*/log", "pods", "log", true},
		{"*/log", "pods/log", "", false},
		{"*/c", "a/b", "c", true},
		{"*", "pods/log", "", true},
		{"pods/", "pods/", "", true},
		{"pods/", "pods", "", false},
		{"pods", "pods/", "", false},
		{"*/", "pods/", "", false},
		{"pods/*", "pods", "log", false},
	}
	for _, tt := range tests {
		t.Run(tt.rule+" for "+tt.resource+" and "+tt.subresource, func(t *testing.T) {
			r := loaded(Policy{
				ClusterRoles:        []*rbacv1.ClusterRole{clusterRole("r", may("get").inGroup("", tt.rule))},
				ClusterRoleBindings: []*rbacv1.ClusterRoleBinding{clusterBinding("b", "r", subjects("User", "alice")...)},
			})
			a := authorizer.AttributesRecord{User: person("alice"), Verb: "get", Resource: tt.resource, Subresource: tt.subresource, ResourceRequest: true}
			if decision, _, _ := r.Authorize(t.Context(), a); (decision == authorizer.DecisionAllow) != tt.want {
				t.Fatalf("Authorize() = %v, want allowed = %t", decision, tt.want)
			}
		})
	}
}

func TestRequestsFailUntilRulesAreLoaded(t *testing.T) {
	r := New(zap.NewNop())
	what := on("get", "", "pods")
	what.User = person("alice")
	if decision, _, err := r.Authorize(t.Context(), what); decision == authorizer.DecisionAllow || !errors.Is(err, ErrNotReady) {
		t.Errorf("Authorize before the rules are loaded = %v, %v, want ErrNotReady", decision, err)
	}
	what.User = person("root", user.SystemPrivilegedGroup)
	if decision, _, err := r.Authorize(t.Context(), what); decision != authorizer.DecisionAllow || err != nil {
		t.Errorf("Authorize of system:masters before the rules are loaded = %v, %v, want allowed", decision, err)
	}
	if _, _, _, err := r.RulesFor(t.Context(), person("alice"), "ns"); !errors.Is(err, ErrNotReady) {
		t.Errorf("RulesFor before the rules are loaded error = %v, want ErrNotReady", err)
	}
	what.User = nil
	if decision, _, err := r.Authorize(t.Context(), what); decision == authorizer.DecisionAllow || err == nil {
		t.Errorf("Authorize without a user = %v, %v, want an error", decision, err)
	}
}

func TestAggregation(t *testing.T) {
	collect := func(name, label string) *rbacv1.ClusterRole {
		r := clusterRole(name, may("forged").inGroup("", "secrets"))
		r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{label: "true"}}}}
		return r
	}
	label := func(r *rbacv1.ClusterRole, label string) *rbacv1.ClusterRole {
		r.Labels[label] = "true"
		return r
	}
	r := loaded(Policy{
		ClusterRoles: []*rbacv1.ClusterRole{
			collect("top", "to-top"),
			label(collect("middle", "to-middle"), "to-top"),
			label(clusterRole("leaf", may("get").inGroup("x", "ys")), "to-middle"),
			label(collect("ring-a", "to-ring-a"), "to-ring-b"),
			label(collect("ring-b", "to-ring-b"), "to-ring-a"),
			label(clusterRole("ring-leaf", may("list").inGroup("x", "ys")), "to-ring-a"),
		},
		ClusterRoleBindings: []*rbacv1.ClusterRoleBinding{
			clusterBinding("top", "top", subjects("User", "top")...),
			clusterBinding("ring", "ring-b", subjects("User", "ring")...),
		},
	})
	tests := []struct {
		name string
		who  string
		what authorizer.AttributesRecord
		want bool
	}{
		{"two steps away", "top", on("get", "x", "ys"), true},
		{"rules written into an aggregated role mean nothing", "top", on("forged", "", "secrets"), false},
		{"roles that select each other", "ring", on("list", "x", "ys"), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.what.User = person(tt.who)
			if decision, _, _ := r.Authorize(t.Context(), tt.what); (decision == authorizer.DecisionAllow) != tt.want {
				t.Fatalf("Authorize() = %v, want allowed = %t", decision, tt.want)
			}
		})
	}
}

// For C16: an aggregated role grants the rules that it aggregates, regardless of its stored rules.
func TestAggregatedRoleIgnoresItsStoredRules(t *testing.T) {
	r := loaded(Bootstrap())
	ref := func(kind, name string) rbacv1.RoleRef { return rbacv1.RoleRef{Kind: kind, Name: name} }
	admin, err := r.RoleRules(t.Context(), "ns", ref("ClusterRole", "admin"))
	if err != nil {
		t.Fatal(err)
	}
	binds := may("create").inGroup(rbacv1.GroupName, "rolebindings").rule()
	reads := may("get").inGroup("", "pods").rule()
	if ok, missing := validation.Covers(admin, []rbacv1.PolicyRule{binds, reads}); !ok {
		t.Errorf("missing rules of admin = %v, want none", missing)
	}
	for _, stored := range Bootstrap().ClusterRoles {
		if ok, _ := validation.Covers(stored.Rules, admin); stored.Name == "admin" && !ok {
			t.Error("stored rules of admin do not cover RoleRules(admin), want them to")
		}
	}
	if _, err := r.RoleRules(t.Context(), "", ref("Role", "extension-apiserver-authentication-reader")); err == nil {
		t.Error("RoleRules of a Role without a namespace succeeded, want an error")
	}
}

func TestRulesFor(t *testing.T) {
	r := loaded(Policy{
		ClusterRoles: []*rbacv1.ClusterRole{clusterRole("a", may("get").inGroup("", "pods"), may("get").urls("/x"))},
		ClusterRoleBindings: []*rbacv1.ClusterRoleBinding{
			clusterBinding("1", "a", subjects("User", "alice")...),
			clusterBinding("2", "a", subjects("Group", "dev")...),
			clusterBinding("3", "gone", subjects("Group", "dev")...),
		},
		Roles:        []*rbacv1.Role{nsRole("ns", "b", may("list").inGroup("", "secrets").named("one"))},
		RoleBindings: []*rbacv1.RoleBinding{binding("ns", "b", "Role", "b", subjects("Group", "dev")...)},
	})
	resources, urls, incomplete, err := r.RulesFor(t.Context(), person("alice", "dev"), "ns")
	if len(resources) != 2 || len(urls) != 1 || incomplete {
		t.Fatalf("RulesFor() = %d resource rules, %d URL rules, incomplete %t, want 2, 1 and complete", len(resources), len(urls), incomplete)
	}
	if got := resources[1]; got.GetVerbs()[0] != "list" || got.GetResourceNames()[0] != "one" {
		t.Errorf("second resource rule = %+v, want list of the name one", got)
	}
	if err == nil || !strings.Contains(err.Error(), `"gone" not found`) {
		t.Errorf("RulesFor() error = %v, want an error that contains \"gone\" not found", err)
	}
	if resources, _, _, _ := r.RulesFor(t.Context(), person("alice", "dev"), "other"); len(resources) != 1 {
		t.Errorf("%d resource rules in another namespace, want 1", len(resources))
	}
}
