package coreapi

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/auth/rbac"
)

func rule(verb, resource string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{""}, Resources: []string{resource}}
}

func TestNobodyGrantsWhatTheyDoNotHold(t *testing.T) {
	h := start(t, func(c *Config) { c.Aggregate = rbac.Aggregate })
	root := h.typed(t, admin)
	namespace(t, root, "work")
	ctx := within(t)
	// Nobody has written the gathered rules into these: what they give is what the roles they select give.
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
				t.Fatalf("got %v", err)
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
			t.Fatalf("got %v", err)
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
			t.Fatalf("labelled: %v", err)
		}
		big.Finalizers = nil
		if _, err := viewer.Update(ctx, big, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("rid of its finalizer: %v", err)
		}
	})
	t.Run("aggregating roles of others", func(t *testing.T) {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sum"}, AggregationRule: &rbacv1.AggregationRule{
			ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"a": "b"}}},
		}}
		_, err := h.typed(t, &user.DefaultInfo{Name: "viewer"}).RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			t.Fatalf("got %v", err)
		}
	})
}
