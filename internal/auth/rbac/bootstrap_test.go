package rbac

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes/fake"
)

func TestBootstrapPolicy(t *testing.T) {
	p := Bootstrap()
	p.RoleBindings = append(p.RoleBindings,
		binding("ns", "admins", "ClusterRole", "admin", subjects("User", "admin")...),
		binding("ns", "editors", "ClusterRole", "edit", subjects("User", "editor")...),
		binding("ns", "viewers", "ClusterRole", "view", subjects("User", "viewer")...),
		binding("kube-system", "ext", "Role", "extension-apiserver-authentication-reader", subjects("User", "ext")...))
	p.ClusterRoleBindings = append(p.ClusterRoleBindings,
		clusterBinding("ext", "system:auth-delegator", subjects("User", "ext")...))
	r := loaded(p)
	everybody := []string{"system:authenticated"}
	nobody := []string{"system:unauthenticated"}
	config := on("watch", "", "configmaps", in("kube-system"), named("extension-apiserver-authentication"))
	tests := []struct {
		name   string
		user   string
		groups []string
		what   authorizer.AttributesRecord
		want   bool
	}{
		{"users discover", "alice", everybody, url("get", "/apis/metrics.k8s.io/v1"), true},
		{"anonymous users do not", "system:anonymous", nobody, url("get", "/apis"), false},
		{"anonymous users see health", "system:anonymous", nobody, url("get", "/livez"), true},
		{"and the version", "system:anonymous", nobody, url("get", "/version"), true},
		{"and not the checks one by one", "system:anonymous", nobody, url("get", "/livez/etcd"), false},
		{"and not metrics", "system:anonymous", nobody, url("get", "/metrics"), false},
		{"monitoring reads metrics", "prom", []string{"system:monitoring"}, url("get", "/metrics"), true},
		{"users ask about themselves", "alice", everybody, on("create", "authorization.k8s.io", "selfsubjectaccessreviews"), true},
		{"who they are", "alice", everybody, on("create", "authentication.k8s.io", "selfsubjectreviews"), true},
		{"B14 and not about others", "alice", everybody, on("create", "authorization.k8s.io", "subjectaccessreviews"), false},
		{"B14 and not about tokens", "alice", everybody, on("create", "authentication.k8s.io", "tokenreviews"), false},
		{"workloads find the issuer", "x", []string{"system:serviceaccounts"}, url("get", "/openid/v1/jwks"), true},
		{"an extension server reads its configuration", "ext", nil, config, true},
		{"and no other ConfigMap", "ext", nil, on("get", "", "configmaps", in("kube-system"), named("other")), false},
		{"and reviews tokens", "ext", nil, on("create", "authentication.k8s.io", "tokenreviews"), true},
		{"and asks about others", "ext", nil, on("create", "authorization.k8s.io", "subjectaccessreviews"), true},
		{"the scheduler reads that configuration too", "system:kube-scheduler", nil, config, true},
		{"a viewer reads pods", "viewer", nil, on("list", "", "pods", in("ns")), true},
		{"and no secrets", "viewer", nil, on("get", "", "secrets", in("ns")), false},
		{"and writes nothing", "viewer", nil, on("create", "", "configmaps", in("ns")), false},
		{"an editor has what a viewer has", "editor", nil, on("list", "", "pods", in("ns")), true},
		{"and writes", "editor", nil, on("create", "", "configmaps", in("ns")), true},
		{"and does not redirect traffic (CVE-2021-25740)", "editor", nil, on("update", "", "endpoints", in("ns")), false},
		{"and gives no rights", "editor", nil, on("create", rbacv1.GroupName, "rolebindings", in("ns")), false},
		{"an admin has what an editor has", "admin", nil, on("create", "", "configmaps", in("ns")), true},
		{"and gives rights", "admin", nil, on("create", rbacv1.GroupName, "rolebindings", in("ns")), true},
		{"elsewhere not", "admin", nil, on("create", "", "configmaps", in("other")), false},
		{"the namespace controller finalizes", "system:serviceaccount:kube-system:namespace-controller", nil, on("update", "", "namespaces/finalize", named("ns")), true},
		{"and empties", "system:serviceaccount:kube-system:namespace-controller", nil, on("deletecollection", "any.example", "things", in("ns")), true},
		{"and creates nothing", "system:serviceaccount:kube-system:namespace-controller", nil, on("create", "", "secrets", in("ns")), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.what.User = person(tt.user, tt.groups...)
			if decision, reason, _ := r.Authorize(t.Context(), tt.what); (decision == authorizer.DecisionAllow) != tt.want {
				t.Fatalf("Authorize() = %v %s, want allowed = %t", decision, reason, tt.want)
			}
		})
	}
	t.Run("no name is used twice", func(t *testing.T) {
		seen := map[string]bool{}
		for _, r := range Bootstrap().ClusterRoles {
			if seen[r.Name] {
				t.Errorf("ClusterRole %s exists twice, want unique names", r.Name)
			}
			seen[r.Name] = true
		}
	})
	t.Run("every bound role exists", func(t *testing.T) {
		for _, b := range Bootstrap().ClusterRoleBindings {
			if !slices.ContainsFunc(p.ClusterRoles, func(r *rbacv1.ClusterRole) bool { return r.Name == b.RoleRef.Name }) {
				t.Errorf("ClusterRoleBinding %s binds %s, want an existing role", b.Name, b.RoleRef.Name)
			}
		}
	})
}

func TestEnsureBootstrap(t *testing.T) {
	ctx := t.Context()
	own := may("get").inGroup("", "secrets").rule()
	existing := func() []*rbacv1.ClusterRole {
		extended := clusterRole("system:basic-user")
		extended.Rules = []rbacv1.PolicyRule{own}
		extended.Labels = map[string]string{"kubernetes.io/bootstrapping": "mine"}
		frozen := clusterRole("system:monitoring")
		frozen.Annotations[rbacv1.AutoUpdateAnnotationKey] = "false"
		plain := clusterRole("edit")
		plain.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"mine": "true"}}}}
		return []*rbacv1.ClusterRole{extended, frozen, plain}
	}()
	moved := bindGroups("system:discovery", "mine")
	moved.RoleRef.Name = "something-else"
	client := fake.NewSimpleClientset(existing[0], existing[1], existing[2], moved)
	if err := EnsureBootstrap(ctx, client); err != nil {
		t.Fatal(err)
	}
	get := func(name string) *rbacv1.ClusterRole {
		t.Helper()
		r, err := client.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := get("system:basic-user"); len(r.Rules) != 3 || r.Rules[0].Resources[0] != "secrets" || r.Labels["kubernetes.io/bootstrapping"] != "mine" {
		t.Errorf("ClusterRole system:basic-user = %+v, want the added rule and label kept and two rules added", r)
	}
	if r := get("system:monitoring"); len(r.Rules) != 0 {
		t.Errorf("ClusterRole system:monitoring with autoupdate=false = %+v, want no rules", r)
	}
	if r := get("edit"); len(r.AggregationRule.ClusterRoleSelectors) != 2 {
		t.Errorf("aggregation rule of edit = %+v, want two selectors", r.AggregationRule)
	}
	if r := get("system:auth-delegator"); len(r.Rules) != 2 || r.Annotations[rbacv1.AutoUpdateAnnotationKey] != "true" {
		t.Errorf("created ClusterRole system:auth-delegator = %+v, want two rules and autoupdate=true", r)
	}
	b, err := client.RbacV1().ClusterRoleBindings().Get(ctx, "system:discovery", metav1.GetOptions{})
	if err != nil || b.RoleRef.Name != "system:discovery" || b.Subjects[0].Name != "system:authenticated" {
		t.Errorf("ClusterRoleBinding system:discovery = %+v, %v, want the role system:discovery and the group system:authenticated", b, err)
	}
	if _, err := client.RbacV1().Roles("kube-system").Get(ctx, "extension-apiserver-authentication-reader", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}

	t.Run("a second time changes nothing", func(t *testing.T) {
		client.ClearActions()
		if err := EnsureBootstrap(ctx, client); err != nil {
			t.Fatal(err)
		}
		for _, a := range client.Actions() {
			if a.GetVerb() != "get" && a.GetVerb() != "list" {
				t.Errorf("request of a second EnsureBootstrap = %s %s, want only get and list", a.GetVerb(), a.GetResource().Resource)
			}
		}
		if n := len(client.Actions()); n > 30 {
			t.Errorf("a second EnsureBootstrap sent %d requests, want at most 30", n)
		}
	})
}
