// Package why says which RBAC rule lets a user do something, or which ones come nearest to it.
//
// It reads the objects as anybody with the right to list them can, so it explains any API server's RBAC. What it says is
// an explanation; the decision is the server's, which may ask more than RBAC.
package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// Question is one request that somebody may or may not make.
type Question struct {
	User                               string
	Groups                             []string
	Verb, Group, Resource              string
	Subresource, Name, Namespace, Path string
}

// Policy is every RBAC object there is.
type Policy struct {
	Roles               []rbacv1.Role
	RoleBindings        []rbacv1.RoleBinding
	ClusterRoles        []rbacv1.ClusterRole
	ClusterRoleBindings []rbacv1.ClusterRoleBinding
}

// Finding is one rule, by way of one binding, and what it lacks.
type Finding struct {
	// Binding and Role are "Kind namespace/name".
	Binding string `json:"binding"`
	Role    string `json:"role"`
	// Subject is whom the binding names: the one that is the user or, when none is, all of them.
	Subject string `json:"subject"`
	// Rule is the rule as a person would say it.
	Rule string `json:"rule"`
	// Lacks is what would have to be different; empty when the rule allows the request.
	Lacks []string `json:"lacks,omitempty"`

	others int // 1: the binding does not name the user
}

// maxNear bounds the findings that are told when nothing allows a request.
const maxNear = 5

// Explain returns the rules that allow q or, when none does, the nearest that do not, nearest first.
func Explain(p Policy, q Question) (allowed bool, findings []Finding) {
	var all []Finding
	for _, b := range p.bindings() {
		rules, role, ok := p.rules(b)
		f := Finding{Binding: b.name, Role: role}
		f.Subject, f.others = b.subjectFor(q)
		if !ok {
			f.Rule, f.Lacks = "none", append(b.lacks(q), "the role itself, which does not exist")
			all = append(all, f)
			continue
		}
		for _, rule := range rules {
			f.Rule, f.Lacks = sentence(rule), append(b.lacks(q), ruleLacks(rule, q)...)
			all = append(all, f)
		}
	}
	granting := slices.DeleteFunc(slices.Clone(all), func(f Finding) bool { return len(f.Lacks) > 0 })
	if len(granting) > 0 {
		return true, granting
	}
	// Of two that lack as much, what was granted to the user is nearer than what was granted to others.
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(len(a.Lacks), len(b.Lacks)), cmp.Compare(a.others, b.others))
	})
	// What lacks more than two things is not near: it speaks of something else.
	all = slices.DeleteFunc(all, func(f Finding) bool { return len(f.Lacks) > 2 })
	return false, all[:min(len(all), maxNear)]
}

// binding is a RoleBinding or a ClusterRoleBinding.
type binding struct {
	name      string
	namespace string // empty: the whole cluster
	ref       rbacv1.RoleRef
	subjects  []rbacv1.Subject
}

func (p Policy) bindings() []binding {
	var all []binding
	for _, b := range p.ClusterRoleBindings {
		all = append(all, binding{"ClusterRoleBinding " + b.Name, "", b.RoleRef, b.Subjects})
	}
	for _, b := range p.RoleBindings {
		all = append(all, binding{"RoleBinding " + b.Namespace + "/" + b.Name, b.Namespace, b.RoleRef, b.Subjects})
	}
	return all
}

// rules are those of the role that b binds; ok is false when there is no such role.
func (p Policy) rules(b binding) (rules []rbacv1.PolicyRule, name string, ok bool) {
	if b.ref.Kind == "ClusterRole" {
		for _, r := range p.ClusterRoles {
			if r.Name == b.ref.Name {
				return r.Rules, "ClusterRole " + r.Name, true
			}
		}
		return nil, "ClusterRole " + b.ref.Name, false
	}
	for _, r := range p.Roles {
		if r.Name == b.ref.Name && r.Namespace == b.namespace {
			return r.Rules, "Role " + r.Namespace + "/" + r.Name, true
		}
	}
	return nil, "Role " + b.namespace + "/" + b.ref.Name, false
}

// lacks is what keeps the binding, whatever its rules say, from speaking of q.
func (b binding) lacks(q Question) []string {
	var lacks []string
	if !slices.ContainsFunc(b.subjects, func(s rbacv1.Subject) bool { return b.names(s, q) }) {
		lacks = append(lacks, fmt.Sprintf("user %s, or a group of theirs, among its subjects", q.User))
	}
	switch {
	case b.namespace == "" || b.namespace == q.Namespace:
	case q.Namespace == "":
		lacks = append(lacks, fmt.Sprintf("the whole cluster (it is for namespace %s)", b.namespace))
	default:
		lacks = append(lacks, fmt.Sprintf("namespace %s (it is for namespace %s)", q.Namespace, b.namespace))
	}
	return lacks
}

func (b binding) names(s rbacv1.Subject, q Question) bool {
	switch s.Kind {
	case rbacv1.UserKind:
		return s.Name == q.User
	case rbacv1.GroupKind:
		return slices.Contains(q.Groups, s.Name)
	case rbacv1.ServiceAccountKind:
		return serviceaccount.MakeUsername(cmp.Or(s.Namespace, b.namespace), s.Name) == q.User
	}
	return false
}

// subjectFor is the subject that is the user, or all of them when they are others.
func (b binding) subjectFor(q Question) (text string, others int) {
	var names []string
	for _, s := range b.subjects {
		text := s.Kind + " " + s.Name
		if s.Kind == rbacv1.ServiceAccountKind {
			text = s.Kind + " " + cmp.Or(s.Namespace, b.namespace) + "/" + s.Name
		}
		if b.names(s, q) {
			return text, 0
		}
		names = append(names, text)
	}
	return cmp.Or(strings.Join(names, ", "), "nobody"), 1
}
