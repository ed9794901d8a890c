// Package explain says which rules of RBAC allow a request, and which come nearest if none does. It needs no server and no informers.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// Query is a request to be explained.
type Query struct {
	User                               string
	Groups                             []string
	Verb, Group, Resource              string
	Subresource, Name, Namespace, Path string
}

// Objects is every RBAC object there is, as anybody with the right to list them reads them from any API server.
type Objects struct {
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

// maxNearFindings bounds the findings that are returned when nothing allows a request.
const maxNearFindings = 5

// Explain returns the rules that allow q or, when none does, the nearest that do not, nearest first. It is an
// explanation; the decision is the server's, which may ask more than RBAC.
func Explain(p Objects, q Query) (allowed bool, findings []Finding) {
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
	return false, all[:min(len(all), maxNearFindings)]
}

// explainedBinding is a RoleBinding or a ClusterRoleBinding.
type explainedBinding struct {
	name      string
	namespace string // empty: the whole cluster
	ref       rbacv1.RoleRef
	subjects  []rbacv1.Subject
}

func (p Objects) bindings() []explainedBinding {
	var all []explainedBinding
	for _, b := range p.ClusterRoleBindings {
		all = append(all, explainedBinding{"ClusterRoleBinding " + b.Name, "", b.RoleRef, b.Subjects})
	}
	for _, b := range p.RoleBindings {
		all = append(all, explainedBinding{"RoleBinding " + b.Namespace + "/" + b.Name, b.Namespace, b.RoleRef, b.Subjects})
	}
	return all
}

// rules are those of the role that b binds; ok is false when there is no such role.
func (p Objects) rules(b explainedBinding) (rules []rbacv1.PolicyRule, name string, ok bool) {
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
func (b explainedBinding) lacks(q Query) []string {
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

func (b explainedBinding) names(s rbacv1.Subject, q Query) bool {
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
func (b explainedBinding) subjectFor(q Query) (text string, others int) {
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

// ruleLacks is what would have to be in the rule for it to allow q.
func ruleLacks(r rbacv1.PolicyRule, q Query) []string {
	var lacks []string
	if !hasOrAll(r.Verbs, q.Verb) {
		lacks = append(lacks, fmt.Sprintf("verb %s (it has %s)", q.Verb, listText(r.Verbs)))
	}
	if q.Path != "" {
		if !slices.ContainsFunc(r.NonResourceURLs, func(u string) bool { return urlCovers(u, q.Path) }) {
			lacks = append(lacks, "path "+q.Path)
			if len(r.NonResourceURLs) == 0 {
				lacks = append(lacks, "paths at all (it is about resources)")
			}
		}
		return lacks
	}
	if len(r.NonResourceURLs) > 0 {
		return append(lacks, "resources at all (it is about paths)", "resource "+q.resource())
	}
	if !hasOrAll(r.APIGroups, q.Group) {
		lacks = append(lacks, fmt.Sprintf("API group %q (it has %s)", q.Group, listText(r.APIGroups)))
	}
	if !slices.ContainsFunc(r.Resources, func(have string) bool { return resourceCovers(have, q) }) {
		lacks = append(lacks, fmt.Sprintf("resource %s (it has %s)", q.resource(), listText(r.Resources)))
	}
	if len(r.ResourceNames) > 0 && !slices.Contains(r.ResourceNames, q.Name) {
		if q.Name == "" {
			lacks = append(lacks, fmt.Sprintf("every name: it is for %s alone, and the request names none", listText(r.ResourceNames)))
		} else {
			lacks = append(lacks, fmt.Sprintf("name %s (it has %s)", q.Name, listText(r.ResourceNames)))
		}
	}
	return lacks
}

func (q Query) resource() string {
	if q.Subresource == "" {
		return q.Resource
	}
	return q.Resource + "/" + q.Subresource
}

func hasOrAll(have []string, want string) bool {
	return slices.Contains(have, want) || slices.Contains(have, "*")
}

// resourceCovers follows RBAC: "*" is every resource and subresource, "*/scale" that subresource of every resource.
func resourceCovers(have string, q Query) bool {
	return have == "*" || have == q.resource() || q.Subresource != "" && have == "*/"+q.Subresource
}

func urlCovers(url, path string) bool {
	if prefix, ok := strings.CutSuffix(url, "*"); ok {
		return strings.HasPrefix(path, prefix)
	}
	return url == path
}

// maxListed bounds what is listed of a long rule.
const maxListed = 8

func listText(all []string) string {
	if len(all) == 0 {
		return "none"
	}
	quoted := make([]string, 0, maxListed)
	for _, s := range all[:min(len(all), maxListed)] {
		quoted = append(quoted, cmp.Or(s, `""`))
	}
	if more := len(all) - maxListed; more > 0 {
		quoted = append(quoted, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(quoted, ", ")
}

// sentence is a rule as a person would say it.
func sentence(r rbacv1.PolicyRule) string {
	if len(r.NonResourceURLs) > 0 {
		return fmt.Sprintf("%s on paths %s", listText(r.Verbs), listText(r.NonResourceURLs))
	}
	text := fmt.Sprintf("%s on %s", listText(r.Verbs), listText(r.Resources))
	if !slices.Equal(r.APIGroups, []string{""}) {
		text += " in API groups " + listText(r.APIGroups)
	}
	if len(r.ResourceNames) > 0 {
		text += " named " + listText(r.ResourceNames)
	}
	return text
}

// String is the question as a person would ask it.
func (q Query) String() string {
	text := q.User + " " + q.Verb + " "
	if q.Path != "" {
		return text + q.Path
	}
	text += q.resource()
	if q.Group != "" {
		text += " in API group " + q.Group
	}
	if q.Name != "" {
		text += " named " + q.Name
	}
	if q.Namespace != "" {
		return text + " in namespace " + q.Namespace
	}
	return text + " in the whole cluster"
}
