// Package explain lists the RBAC rules that allow a request, or the nearest ones if none does. It requires no server
// and no informers.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// Query is a request to explain.
type Query struct {
	User                               string
	Groups                             []string
	Verb, Group, Resource              string
	Subresource, Name, Namespace, Path string
}

// Objects holds all RBAC objects, as listed from any API server.
type Objects struct {
	Roles               []rbacv1.Role
	RoleBindings        []rbacv1.RoleBinding
	ClusterRoles        []rbacv1.ClusterRole
	ClusterRoleBindings []rbacv1.ClusterRoleBinding
}

// Finding is a rule, the binding that grants it, and the differences from the request.
type Finding struct {
	// Binding and Role are "Kind namespace/name".
	Binding string `json:"binding"`
	Role    string `json:"role"`
	// Subject is the binding's subject that matches the user, or all its subjects if none matches.
	Subject string `json:"subject"`
	// Rule is the rule in readable form.
	Rule string `json:"rule"`
	// Lacks lists the required differences. It is empty if the rule allows the request.
	Lacks []string `json:"lacks,omitempty"`

	missingUsers int // 1 if the binding does not contain the user
}

// maxNearFindings is the maximum number of findings returned if no rule allows a request.
const maxNearFindings = 5

// Explain returns the rules that allow q or, if none does, the nearest rules, nearest first. The server's decision
// may differ, because it may have other authorizers.
func Explain(p Objects, q Query) (allowed bool, findings []Finding) {
	var all []Finding
	for _, b := range p.bindings() {
		rules, role, ok := p.rules(b)
		f := Finding{Binding: b.name, Role: role}
		f.Subject, f.missingUsers = b.subjectFor(q)
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
	// With equal numbers of differences, a rule granted to the user precedes rules granted to other subjects.
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(len(a.Lacks), len(b.Lacks)), cmp.Compare(a.missingUsers, b.missingUsers))
	})
	// A rule with more than two differences is not related to the request.
	all = slices.DeleteFunc(all, func(f Finding) bool { return len(f.Lacks) > 2 })
	return false, all[:min(len(all), maxNearFindings)]
}

// explainedBinding is a RoleBinding or a ClusterRoleBinding.
type explainedBinding struct {
	name      string
	namespace string // empty for a cluster-wide binding
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

// rules returns the rules of the role that b binds. ok is false if the role does not exist.
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

// lacks returns the differences that prevent the binding from applying to q, regardless of its rules.
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

// subjectFor returns the subject that matches the user and 0, or all subjects and 1.
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

// ruleLacks returns the differences that prevent the rule from allowing q.
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

// resourceCovers matches like RBAC: "*" matches every resource and subresource, "*/scale" that subresource of every
// resource.
func resourceCovers(have string, q Query) bool {
	return have == "*" || have == q.resource() || q.Subresource != "" && have == "*/"+q.Subresource
}

func urlCovers(url, path string) bool {
	if prefix, ok := strings.CutSuffix(url, "*"); ok {
		return strings.HasPrefix(path, prefix)
	}
	return url == path
}

// maxListed is the maximum number of listed values of a long rule.
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

// sentence returns a rule in readable form.
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

// String returns the query in readable form.
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
