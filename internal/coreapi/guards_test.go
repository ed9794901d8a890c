package coreapi

import (
	"context"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"

	"portico.dev/internal/auth/rbac"
	rbackinds "portico.dev/internal/coreapi/kinds/rbac"
)

func rule(verb, resource string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{""}, Resources: []string{resource}}
}

func TestPrivilegeEscalationByRolesIsForbidden(t *testing.T) {
	h := start(t, func(c *Config) { c.Aggregate = rbac.Aggregate })
	root := h.typed(t, admin)
	namespace(t, root, "work")
	ctx := within(t)
	// No controller wrote the aggregated rules into these roles. They grant the rules of the roles that they select.
	for name, part := range map[string]rbacv1.PolicyRule{"gathers-small": rule("get", "pods"), "gathers-large": rule("*", "*")} {
		labels := map[string]string{"into": name}
		for _, role := range []*rbacv1.ClusterRole{
			{ObjectMeta: metav1.ObjectMeta{Name: name + "-part", Labels: labels}, Rules: []rbacv1.PolicyRule{part}},
			{ObjectMeta: metav1.ObjectMeta{Name: name}, AggregationRule: &rbacv1.AggregationRule{
				ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: labels}},
			}},
		} {
			if _, err := root.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, rules := range map[string][]rbacv1.PolicyRule{"small": {rule("get", "pods")}, "large": {rule("*", "*")}, "view": {rule("get", "*")}} {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
		if _, err := root.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	bind := func(who, role string) error {
		_, err := h.typed(t, &user.DefaultInfo{Name: who}).RbacV1().RoleBindings("work").Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "b-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: who}},
		}, metav1.CreateOptions{})
		return err
	}
	for _, c := range []struct {
		name, who, role string
		refused         func(error) bool
	}{
		{"a role that they hold", "viewer", "small", nil},
		{"a role that they do not hold", "viewer", "large", apierrors.IsForbidden},
		{"a role that they may bind", "binder", "view", nil},
		{"a role beside the one they may bind", "binder", "small", apierrors.IsForbidden},
		{"C16 an aggregated role that gives what they hold", "viewer", "gathers-small", nil},
		{"C16 an aggregated role that gives more", "viewer", "gathers-large", apierrors.IsForbidden},
		{"a role that is not there", "viewer", "missing", apierrors.IsNotFound},
	} {
		t.Run("binding "+c.name, func(t *testing.T) {
			err := bind(c.who, c.role)
			if c.refused == nil && err != nil || c.refused != nil && !c.refused(err) {
				t.Fatalf("binding %s by %s: error = %v, want an error: %v", c.role, c.who, err, c.refused != nil)
			}
		})
	}

	viewer := h.typed(t, &user.DefaultInfo{Name: "viewer"}).RbacV1().Roles("work")
	t.Run("writing a role that says more than they hold", func(t *testing.T) {
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Rules: []rbacv1.PolicyRule{rule("get", "pods")}}
		own, err := viewer.Create(ctx, role, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		own.Rules = append(own.Rules, rule("get", "secrets"))
		_, err = viewer.Update(ctx, own, metav1.UpdateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`) {
			t.Fatalf("update of the role with a rule for secrets: error = %v, want Forbidden that names the rule", err)
		}
	})
	t.Run("a role that says more than they hold", func(t *testing.T) {
		role := &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: "big", Finalizers: []string{"example.com/wait"}}, Rules: []rbacv1.PolicyRule{rule("*", "*")},
		}
		big, err := root.RbacV1().Roles("work").Create(ctx, role, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		labelled := big.DeepCopy()
		labelled.Labels = map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}
		if _, err := viewer.Update(ctx, labelled, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
			t.Fatalf("update of the label that aggregates to view: error = %v, want Forbidden", err)
		}
		big.Finalizers = nil
		if _, err := viewer.Update(ctx, big, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("removal of the finalizer failed: %v, want no error", err)
		}
	})
	t.Run("aggregating roles of others", func(t *testing.T) {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sum"}, AggregationRule: &rbacv1.AggregationRule{
			ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"a": "b"}}},
		}}
		_, err := h.typed(t, &user.DefaultInfo{Name: "viewer"}).RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			t.Fatalf("create of an aggregating role: error = %v, want Forbidden", err)
		}
	})
}

// C16: an aggregated role gets the rules that other users write into the selected roles. Its aggregationRule is therefore
// reserved for users with all rights. This includes setting, changing and removing it,
// because a role without it can no longer be restricted.
func TestC16AggregationRuleNeedsAllRights(t *testing.T) {
	const full = "full"
	table := roleTable{cluster: map[string][]rbacv1.PolicyRule{
		"limited": {rule("get", "pods")}, full: rbackinds.Everything,
		"escalator": {{Verbs: []string{"escalate"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}}},
	}}
	h := start(t, func(c *Config) { a := table.authorizer(); c.Authorizer, c.RuleResolver = a, a })
	ctx := within(t)
	selecting := func(label string) *rbacv1.AggregationRule {
		return &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"a": label}}}}
	}
	for name, aggregates := range map[string]*rbacv1.AggregationRule{"gathers": selecting("b"), "plain": nil} {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/wait"}}, AggregationRule: aggregates, Rules: []rbacv1.PolicyRule{rule("get", "pods")}}
		if _, err := h.typed(t, admin).RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		what, name, patch string
		guarded           bool
	}{
		{"removal", "gathers", `{"aggregationRule":null}`, true},
		{"no selectors any more", "gathers", `{"aggregationRule":{"clusterRoleSelectors":null}}`, true},
		{"change", "gathers", `{"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"c"}}]}}`, true},
		{"a label beside it", "gathers", `{"metadata":{"labels":{"x":"y"}}}`, true},
		{"rules beside it", "gathers", `{"rules":[]}`, true},
		{"addition", "plain", `{"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"c"}}]}}`, true},
		{"a finalizer less", "gathers", `{"metadata":{"finalizers":null}}`, false},
		{"a label of a role without one", "plain", `{"metadata":{"labels":{"x":"y"}}}`, false},
	} {
		patch := func(who string) error {
			u := &user.DefaultInfo{Name: who}
			_, err := h.typed(t, u).RbacV1().ClusterRoles().Patch(ctx, c.name, types.MergePatchType, []byte(c.patch), metav1.PatchOptions{DryRun: []string{"All"}})
			return err
		}
		t.Run(c.what, func(t *testing.T) {
			err := patch("limited")
			const message = `is forbidden: must have cluster-admin privileges to use the aggregationRule`
			switch {
			case c.guarded && (!apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), message)):
				t.Errorf("patch by a user who may read pods: error = %v, want Forbidden with the suffix %q", err, message)
			case !c.guarded && err != nil:
				t.Errorf("patch by a user who may read pods failed: %v, want no error", err)
			}
			for _, who := range []string{full, "escalator"} {
				// The guard does not reject objects that validation rejects.
				if err := patch(who); err != nil && !apierrors.IsInvalid(err) {
					t.Errorf("patch by %s: error = %v, want no error or Invalid", who, err)
				}
			}
		})
	}
}

// C16: as at kube-apiserver, a right for one name does not include a create of that name by POST, because the request has no
// name, and never includes another name.
func TestC16NamedEscalateRightExcludesCreate(t *testing.T) {
	only := func(verb, resource, name string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: []string{verb}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{resource}, ResourceNames: []string{name}}}
	}
	asked := &askedAuthorizer{Authorizer: roleTable{
		cluster: map[string][]rbacv1.PolicyRule{
			"one": append(only("escalate", "clusterroles", "mine"), rights("create", rbacv1.GroupName, "clusterroles")...),
			"all": rights("escalate", rbacv1.GroupName, "clusterroles"), "binder": only("bind", "clusterroles", "mine"),
		},
		inNS: map[string][]rbacv1.PolicyRule{
			"one-here": only("escalate", "roles", "mine"), "binder-here": append(only("bind", "clusterroles", "mine"), only("bind", "roles", "mine")...),
		},
	}.authorizer()}
	h := start(t, func(c *Config) { c.Authorizer, c.RuleResolver = asked, asked.Authorizer.(authorizer.RuleResolver) })
	root := h.typed(t, admin)
	namespace(t, root, "ns")
	namespace(t, root, "other")
	ctx := within(t)
	for _, name := range []string{"mine", "other"} {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule("get", "secrets")}}
		if _, err := root.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, ns := range []string{"ns", "other"} {
			role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule("get", "secrets")}}
			if _, err := root.RbacV1().Roles(ns).Create(ctx, role, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	dry := metav1.CreateOptions{DryRun: []string{"All"}}
	as := func(who string) rbacclient.RbacV1Interface { return h.typed(t, &user.DefaultInfo{Name: who}).RbacV1() }
	create := func(who, name string) error {
		_, err := as(who).ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule("*", "*")}}, dry)
		return err
	}
	const more = `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`
	patch := func(who, name string) error {
		_, err := as(who).ClusterRoles().Patch(ctx, name, types.MergePatchType, []byte(more), metav1.PatchOptions{DryRun: []string{"All"}})
		return err
	}
	apply := func(who, name string) error {
		role := rbacapply.ClusterRole(name).WithRules(rbacapply.PolicyRule().WithAPIGroups("*").WithResources("*").WithVerbs("*"))
		_, err := as(who).ClusterRoles().Apply(ctx, role, metav1.ApplyOptions{FieldManager: "a", Force: true, DryRun: []string{"All"}})
		return err
	}
	put := func(who, name string) error {
		_, err := as(who).ClusterRoles().Update(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule("*", "*")}}, metav1.UpdateOptions{DryRun: []string{"All"}})
		return err
	}
	patchIn := func(who, ns, name string) error {
		_, err := as(who).Roles(ns).Patch(ctx, name, types.MergePatchType, []byte(more), metav1.PatchOptions{DryRun: []string{"All"}})
		return err
	}
	bind := func(who, kind, name string) error {
		_, err := as(who).ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "mine"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
		}, dry)
		return err
	}
	bindIn := func(who, ns, kind, name string) error {
		_, err := as(who).RoleBindings(ns).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "mine"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
		}, dry)
		return err
	}
	for _, c := range []struct {
		what    string
		err     error
		allowed bool
	}{
		{"create by POST under a name that begins so", create("one", "mine-too"), false},
		{"create by POST under another name", create("one", "new"), false},
		{"create by POST with a right for all names", create("all", "new"), true},
		{"update of the name by patch", patch("one", "mine"), true},
		{"update of the name by PUT", put("one", "mine"), true},
		{"update of the name by apply", apply("one", "mine"), true},
		{"update of another by patch", patch("one", "other"), false},
		{"update of another by PUT", put("one", "other"), false},
		{"update of another by apply", apply("one", "other"), false},
		{"create of another by PUT", put("one", "new"), false},
		{"create of another by apply", apply("one", "new"), false},
		{"a role of the namespace", patchIn("one-here", "ns", "mine"), true},
		{"another role of the namespace", patchIn("one-here", "ns", "other"), false},
		{"a role of that name elsewhere", patchIn("one-here", "other", "mine"), false},
		{"binding the name everywhere", bind("binder", "ClusterRole", "mine"), true},
		{"binding another everywhere", bind("binder", "ClusterRole", "other"), false},
		{"binding the name in a namespace", bindIn("binder", "ns", "ClusterRole", "mine"), true},
		{"binding another in a namespace", bindIn("binder", "ns", "ClusterRole", "other"), false},
		{"binding a Role by a right for the ClusterRole of that name", bindIn("binder", "ns", "Role", "mine"), false},
		{"a right of a namespace, there", bindIn("binder-here", "ns", "ClusterRole", "mine"), true},
		{"a right of a namespace for its Role", bindIn("binder-here", "ns", "Role", "mine"), true},
		{"a right of a namespace for another Role", bindIn("binder-here", "ns", "Role", "other"), false},
		{"a right of a namespace, elsewhere", bindIn("binder-here", "other", "ClusterRole", "mine"), false},
		{"a right of a namespace, everywhere", bind("binder-here", "ClusterRole", "mine"), false},
	} {
		t.Run(c.what, func(t *testing.T) {
			switch {
			case c.allowed && c.err != nil:
				t.Errorf("request failed: %v, want no error", c.err)
			case !c.allowed && !apierrors.IsForbidden(c.err):
				t.Errorf("request: error = %v, want Forbidden", c.err)
			}
		})
	}
	t.Run("the very name by POST", func(t *testing.T) {
		if err := root.RbacV1().ClusterRoles().Delete(ctx, "mine", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := create("one", "mine"); !apierrors.IsForbidden(err) {
			t.Errorf("POST of the permitted name: error = %v, want Forbidden", err)
		}
		if err := put("one", "mine"); err != nil {
			t.Errorf("PUT of the permitted name failed: %v, want no error", err)
		}
		if err := apply("one", "mine"); err != nil {
			t.Errorf("apply of the permitted name failed: %v, want no error", err)
		}
	})
	t.Run("what authorizers are asked", func(t *testing.T) {
		for _, a := range asked.all() {
			if a.GetAPIVersion() != "*" || a.GetAPIGroup() != rbacv1.GroupName || !a.IsResourceRequest() {
				t.Errorf("authorizer attributes: %s of %s/%s %s, want %s with the version *", a.GetVerb(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), rbacv1.GroupName)
			}
		}
	})
}

// askedAuthorizer records the attributes of checks about roles.
type askedAuthorizer struct {
	authorizer.Authorizer

	mu   sync.Mutex // guards seen
	seen []authorizer.Attributes
}

func (a *askedAuthorizer) Authorize(ctx context.Context, about authorizer.Attributes) (authorizer.Decision, string, error) {
	if about.GetVerb() == "escalate" || about.GetVerb() == "bind" {
		a.mu.Lock()
		a.seen = append(a.seen, about)
		a.mu.Unlock()
	}
	return a.Authorizer.Authorize(ctx, about)
}

func (a *askedAuthorizer) all() []authorizer.Attributes {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen
}
