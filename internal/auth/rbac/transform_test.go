package rbac

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// A binding with fields removed results in the same decisions and reasons.
func TestTrimmedBindingGivesSameDecisions(t *testing.T) {
	about := func(name, namespace string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: name, Namespace: namespace, UID: "u", ResourceVersion: "7", Generation: 3, CreationTimestamp: metav1.NewTime(time.Unix(1, 0)),
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": strings.Repeat("d", 100)},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: &metav1.FieldsV1{}}},
		}
	}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"}
	policy := func() Policy {
		return Policy{
			ClusterRoles: []*rbacv1.ClusterRole{{ObjectMeta: about("reader", ""), Rules: []rbacv1.PolicyRule{{
				Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"},
			}}}},
			ClusterRoleBindings: []*rbacv1.ClusterRoleBinding{{ObjectMeta: about("all", ""), RoleRef: ref, Subjects: []rbacv1.Subject{
				{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "dev"},
			}}},
			RoleBindings: []*rbacv1.RoleBinding{{ObjectMeta: about("one", "n"), RoleRef: ref, Subjects: []rbacv1.Subject{
				{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "alice"},
				{Kind: rbacv1.ServiceAccountKind, Name: "robot", Namespace: "m"},
			}}},
		}
	}
	whole, lean := New(zap.NewNop()), New(zap.NewNop())
	whole.Load(policy())
	p := policy()
	bindings := []*Binding{TransformBinding(p.ClusterRoleBindings[0]).(*Binding), TransformBinding(p.RoleBindings[0]).(*Binding)}
	p.ClusterRoleBindings, p.RoleBindings, p.Bindings = nil, nil, bindings
	lean.Load(p)
	const byOne = `RBAC: allowed by RoleBinding "one/n" of ClusterRole "reader" to `
	for _, c := range []struct {
		who         *user.DefaultInfo
		here, there string // the reason in the namespace of the RoleBinding and in another; empty: not allowed
	}{
		{&user.DefaultInfo{Name: "alice"}, byOne + `User "alice"`, ""},
		{
			&user.DefaultInfo{Name: "bob", Groups: []string{"dev"}},
			`RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "reader" to Group "dev"`,
			`RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "reader" to Group "dev"`,
		},
		{&user.DefaultInfo{Name: "system:serviceaccount:m:robot"}, byOne + `ServiceAccount "robot/m"`, ""},
		{&user.DefaultInfo{Name: "system:serviceaccount:n:robot"}, "", ""},
	} {
		for namespace, want := range map[string]string{"n": c.here, "other": c.there} {
			a := authorizer.AttributesRecord{User: c.who, Verb: "get", Resource: "pods", Namespace: namespace, ResourceRequest: true}
			for how, r := range map[string]*RBAC{"whole": whole, "lean": lean} {
				decision, said, err := r.Authorize(t.Context(), a)
				if said != want || err != nil || (decision == authorizer.DecisionAllow) != (want != "") {
					t.Errorf("Authorize(%s) with the %s bindings in %s = %v %q %v, want %q", c.who.Name, how, namespace, decision, said, err, want)
				}
			}
		}
	}
	if accessor, err := apimeta.Accessor(bindings[1]); err != nil || accessor.GetName() != "one" || accessor.GetNamespace() != "n" || accessor.GetResourceVersion() != "7" {
		t.Errorf("accessor of a transformed binding = %v, %v, want n/one at the version 7", accessor, err)
	}
	if role := p.ClusterRoles[0]; TransformBinding(role) != any(role) {
		t.Error("TransformBinding of a role returned another object, want the same")
	}
}

// There are about as many bindings as users: most bindings have one subject, and most subjects have one binding.
func TestCommonBindingPartsAreShared(t *testing.T) {
	bound := func(name string, users ...string) *rbacv1.RoleBinding {
		b := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: name}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"}}
		for _, u := range users {
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, Name: u})
		}
		return b
	}
	x := newIndex(Policy{
		ClusterRoles: []*rbacv1.ClusterRole{{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}},
		RoleBindings: []*rbacv1.RoleBinding{bound("a", "alice"), bound("b", "alice", "bob")},
	})
	alice, bob := x.users.get("alice"), x.users.get("bob")
	one, two := alice.bindings[0], bob.bindings[0]
	if len(one.subjects) != 1 || &one.subjects[0] != &one.first[0] || len(two.subjects) != 2 || two.subjects[1].name != "bob" {
		t.Errorf("subjects of the bindings = %v and %v, want one stored inline, and two", one.subjects, two.subjects)
	}
	if len(bob.bindings) != 1 || &bob.bindings[0] != &bob.firstBy[0] || bob.only.grants[0] != &bob.firstGrant || &bob.only.grants[0] != &bob.firstGrants[0] {
		t.Errorf("grants of bob = %+v, want one, stored inline", bob.only)
	}
	if len(alice.bindings) != 2 || alice.in("a").grants[0] != &alice.firstGrant || alice.in("b").grants[0] == &alice.firstGrant {
		t.Errorf("grants of alice = %+v and %+v, want only the first stored inline", alice.in("a"), alice.in("b"))
	}
	if g := alice.in("b").grants[0]; g.source.Binding != two || g.source.subject.name != "alice" {
		t.Errorf("grant of alice in b = %+v, want the second binding and the subject alice", g.source)
	}
}
