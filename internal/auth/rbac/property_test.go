package rbac

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-helpers/auth/rbac/validation"
	"pgregory.net/rapid"
)

// The words of the property test are few, so that policies and requests match often, and unusual, to cover edge cases.
var (
	someVerbs     = []string{"get", "list", "*", ""}
	someGroups    = []string{"", "apps", "*"}
	someResources = []string{"pods", "pods/log", "pods/scale", "pods/", "*/scale", "*/", "*", "jobs", "pods/*", "a/b/c"}
	someNames     = []string{"x", "y", "*", ""}
	someURLs      = []string{"/a", "/a/b", "/a/*", "/a*", "*", "/a**", ""}
	someUsers     = []string{"u1", "u2", "system:serviceaccount:n1:robot"}
	someTeams     = []string{"g1", "g2"}
	someSpaces    = []string{"n1", "n2"}
)

func subset(t *rapid.T, label string, from []string, least int) []string {
	return rapid.SliceOfN(rapid.SampledFrom(from), least, 3).Draw(t, label)
}

func drawRules(t *rapid.T) []rbacv1.PolicyRule {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rbacv1.PolicyRule {
		r := rbacv1.PolicyRule{Verbs: subset(t, "verbs", someVerbs, 1)}
		if rapid.Bool().Draw(t, "resource rule") {
			r.APIGroups = subset(t, "groups", someGroups, 1)
			r.Resources = subset(t, "resources", someResources, 1)
			r.ResourceNames = subset(t, "names", someNames, 0)
		} else {
			r.NonResourceURLs = subset(t, "urls", someURLs, 1)
		}
		return r
	}), 0, 3).Draw(t, "rules")
}

func drawSubjects(t *rapid.T) []rbacv1.Subject {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rbacv1.Subject {
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			return rbacv1.Subject{Kind: "User", Name: rapid.SampledFrom(someUsers).Draw(t, "user")}
		case 1:
			return rbacv1.Subject{Kind: "Group", Name: rapid.SampledFrom(someTeams).Draw(t, "group")}
		}
		return rbacv1.Subject{Kind: "ServiceAccount", Name: "robot", Namespace: rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "namespace")}
	}), 0, 3).Draw(t, "subjects")
}

func drawPolicy(t *rapid.T) Policy {
	var p Policy
	for i := range rapid.IntRange(0, 4).Draw(t, "cluster roles") {
		r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)}, Rules: drawRules(t)}
		p.ClusterRoles = append(p.ClusterRoles, r)
	}
	for _, ns := range someSpaces {
		for i := range rapid.IntRange(0, 2).Draw(t, "roles") {
			p.Roles = append(p.Roles, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("r%d", i)}, Rules: drawRules(t)})
		}
	}
	clusterRoles := []string{"c0", "c1", "c2", "c3"}
	// Some policies have enough bindings for scopes that are arranged by target.
	for i := range rapid.IntRange(0, 40).Draw(t, "cluster bindings") {
		p.ClusterRoleBindings = append(p.ClusterRoleBindings,
			clusterBinding(fmt.Sprintf("cb%d", i), rapid.SampledFrom(clusterRoles).Draw(t, "role"), drawSubjects(t)...))
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "bindings") {
		kind, roles := "ClusterRole", clusterRoles
		if rapid.Bool().Draw(t, "to a Role") {
			kind, roles = "Role", []string{"r0", "r1"}
		}
		p.RoleBindings = append(p.RoleBindings, binding(rapid.SampledFrom(someSpaces).Draw(t, "namespace"), fmt.Sprintf("b%d", i),
			kind, rapid.SampledFrom(roles).Draw(t, "role"), drawSubjects(t)...))
	}
	return p
}

func drawQuestion(t *rapid.T) authorizer.AttributesRecord {
	a := authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: rapid.SampledFrom(someUsers).Draw(t, "who"), Groups: subset(t, "of", someTeams, 0)},
		Verb: rapid.SampledFrom([]string{"get", "list", "delete", "*", ""}).Draw(t, "verb"),
	}
	if !rapid.Bool().Draw(t, "about a resource") {
		a.Path = rapid.SampledFrom([]string{"/a", "/a/b", "/a/b/c", "/ab", "/", "", "*"}).Draw(t, "path")
		return a
	}
	a.ResourceRequest = true
	a.APIGroup = rapid.SampledFrom([]string{"", "apps", "batch", "*"}).Draw(t, "group")
	// No slashes: upstream's rule evaluation has no subresource apart from the resource. TestResourceNameWithSlashIsComparedWhole covers them.
	a.Resource = rapid.SampledFrom([]string{"pods", "jobs", "*", "a"}).Draw(t, "resource")
	a.Subresource = rapid.SampledFrom([]string{"", "", "log", "scale", "*", "b/c", "c"}).Draw(t, "subresource")
	a.Name = rapid.SampledFrom([]string{"", "x", "z", "*"}).Draw(t, "name")
	a.Namespace = rapid.SampledFrom([]string{"", "n1", "n2", "n3"}).Draw(t, "namespace")
	return a
}

// naive evaluates every binding, and evaluates each rule with Kubernetes' library.
func naive(p Policy, a authorizer.AttributesRecord) bool {
	asked := rbacv1.PolicyRule{Verbs: []string{a.Verb}}
	if a.ResourceRequest {
		resource := a.Resource
		if a.Subresource != "" {
			resource += "/" + a.Subresource
		}
		asked.APIGroups, asked.Resources = []string{a.APIGroup}, []string{resource}
		asked.ResourceNames = []string{a.Name}
	} else {
		asked.NonResourceURLs = []string{a.Path}
	}
	covers := func(rules []rbacv1.PolicyRule) bool {
		ok, _ := validation.Covers(rules, []rbacv1.PolicyRule{asked})
		return ok
	}
	for _, b := range p.ClusterRoleBindings {
		if applies(b.Subjects, a.User, "") && covers(rulesOf(p, "ClusterRole", "", b.RoleRef.Name)) {
			return true
		}
	}
	for _, b := range p.RoleBindings {
		if b.Namespace == a.Namespace && applies(b.Subjects, a.User, b.Namespace) && covers(rulesOf(p, b.RoleRef.Kind, b.Namespace, b.RoleRef.Name)) {
			return true
		}
	}
	return false
}

func rulesOf(p Policy, kind, namespace, name string) []rbacv1.PolicyRule {
	if kind == "ClusterRole" {
		for _, r := range p.ClusterRoles {
			if r.Name == name {
				return r.Rules
			}
		}
		return nil
	}
	for _, r := range p.Roles {
		if r.Namespace == namespace && r.Name == name {
			return r.Rules
		}
	}
	return nil
}

func applies(subjects []rbacv1.Subject, u user.Info, namespace string) bool {
	for _, s := range subjects {
		ns := s.Namespace
		if ns == "" {
			ns = namespace
		}
		if s.Kind == "User" && s.Name == u.GetName() ||
			s.Kind == "Group" && strings.Contains("\x00"+strings.Join(u.GetGroups(), "\x00")+"\x00", "\x00"+s.Name+"\x00") ||
			s.Kind == "ServiceAccount" && ns != "" && u.GetName() == "system:serviceaccount:"+ns+":"+s.Name {
			return true
		}
	}
	return false
}

// The property behind C16: the index returns the same decisions as an evaluation of every binding.
func TestIndexMatchesNaiveEvaluation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		r := loaded(p)
		for range 20 {
			a := drawQuestion(t)
			got, reason, err := r.Authorize(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			if want := naive(p, a); (got == authorizer.DecisionAllow) != want {
				t.Fatalf("Authorize(%+v) = %v (%s), want allowed = %t", a, got, reason, want)
			}
		}
	})
}
