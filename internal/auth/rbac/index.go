package rbac

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Policy is a set of roles and bindings.
type Policy struct {
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
}

// index is a Policy compiled for decisions. It never changes; a change makes another one.
type index struct {
	users  map[string]*subject // service accounts are here too, under their user names
	groups map[string]*subject
	roles  roles
}

// subject is what is bound to one user or group.
type subject struct {
	cluster    *scope
	namespaces map[string]*scope
}

// scope is what is bound to a subject cluster-wide or in one namespace.
type scope struct {
	grants []*grant
	// merged is all of the grants in one table. It exists where there are many, so that a group that everybody binds
	// roles to costs no more to ask than another one.
	merged *table
	// mentions has, for each target, a bit for each grant whose role speaks of it. It exists where there are a few grants.
	mentions map[targetID]uint16
	// missing are the roles that are bound and do not exist.
	missing []error
}

// grant is one binding of one role to one subject.
type grant struct {
	role   *role
	reason string // why a request that the role allows is allowed
}

// role is a role that exists, compiled. It is shared by every binding of it.
type role struct {
	rules []rbacv1.PolicyRule
	table table
}

// some is what a role's own table says instead of a grant: who was granted the role is known to who asks.
var some = &grant{}

// manyGrants is where looking at each of them begins to cost more than a table of them all. Fewer have a bit each in
// scope.mentions.
const manyGrants = 16

func newIndex(p Policy) *index {
	x := &index{users: make(map[string]*subject), groups: make(map[string]*subject), roles: compileRoles(p)}
	// Informers list in no order. With an order, the reason for a decision is the same on every replica.
	clusterBindings := slices.SortedFunc(slices.Values(p.ClusterRoleBindings), func(a, b *rbacv1.ClusterRoleBinding) int {
		return strings.Compare(a.Name, b.Name)
	})
	for _, b := range clusterBindings {
		source := fmt.Sprintf("ClusterRoleBinding %q of %s %q", b.Name, b.RoleRef.Kind, b.RoleRef.Name)
		found, err := x.roles.find("", b.RoleRef)
		x.bind(found, err, source, "", b.Subjects)
	}
	bindings := slices.SortedFunc(slices.Values(p.RoleBindings), func(a, b *rbacv1.RoleBinding) int {
		return strings.Compare(a.Name, b.Name)
	})
	for _, b := range bindings {
		source := fmt.Sprintf("RoleBinding %q of %s %q", b.Name+"/"+b.Namespace, b.RoleRef.Kind, b.RoleRef.Name)
		found, err := x.roles.find(b.Namespace, b.RoleRef)
		x.bind(found, err, source, b.Namespace, b.Subjects)
	}
	x.arrange()
	return x
}

// bind grants a role, or remembers why there is none.
func (x *index) bind(found *role, missing error, source, namespace string, subjects []rbacv1.Subject) {
	for _, s := range subjects {
		to, described := x.subject(s, namespace)
		if to == nil {
			continue
		}
		sc := to.scope(namespace)
		switch {
		case missing != nil:
			sc.missing = append(sc.missing, missing)
		// A second binding of the same role to the same subject changes no answer.
		case !slices.ContainsFunc(sc.grants, func(g *grant) bool { return g.role == found }):
			sc.grants = append(sc.grants, &grant{role: found, reason: "RBAC: allowed by " + source + " to " + described})
		}
	}
}

// subject returns where grants to s are kept, nil when s names nobody.
func (x *index) subject(s rbacv1.Subject, namespace string) (*subject, string) {
	switch s.Kind {
	case rbacv1.UserKind:
		return entry(x.users, s.Name), fmt.Sprintf("%s %q", s.Kind, s.Name)
	case rbacv1.GroupKind:
		return entry(x.groups, s.Name), fmt.Sprintf("%s %q", s.Kind, s.Name)
	case rbacv1.ServiceAccountKind:
		if s.Namespace != "" {
			namespace = s.Namespace
		}
		if namespace == "" {
			return nil, ""
		}
		return entry(x.users, serviceaccount.MakeUsername(namespace, s.Name)), fmt.Sprintf("%s %q", s.Kind, s.Name+"/"+namespace)
	}
	return nil, ""
}

func entry(m map[string]*subject, name string) *subject {
	s := m[name]
	if s == nil {
		s = &subject{}
		m[name] = s
	}
	return s
}

func (s *subject) scope(namespace string) *scope {
	if namespace == "" {
		if s.cluster == nil {
			s.cluster = &scope{}
		}
		return s.cluster
	}
	if s.namespaces == nil {
		s.namespaces = make(map[string]*scope)
	}
	sc := s.namespaces[namespace]
	if sc == nil {
		sc = &scope{}
		s.namespaces[namespace] = sc
	}
	return sc
}

func (x *index) arrange() {
	for _, m := range []map[string]*subject{x.users, x.groups} {
		for _, s := range m {
			s.cluster.arrange(x.roles.targets)
			for _, sc := range s.namespaces {
				sc.arrange(x.roles.targets)
			}
		}
	}
}

func (sc *scope) arrange(known targets) {
	switch {
	case sc == nil || len(sc.grants) < 2:
	case len(sc.grants) < manyGrants:
		sc.mentions = make(map[targetID]uint16)
		for i, g := range sc.grants {
			for id := range g.role.table.resources {
				sc.mentions[id] |= 1 << i
			}
		}
	default:
		sc.merged = &table{}
		for _, g := range sc.grants {
			sc.merged.add(g.role.rules, g, known)
		}
	}
}

// allowing is the first grant that allows q, nil when none does.
func (sc *scope) allowing(q *question) *grant {
	if sc == nil {
		return nil
	}
	if sc.merged != nil {
		return sc.merged.allowing(q)
	}
	if sc.mentions == nil || !q.resource {
		for _, g := range sc.grants {
			if g.role.table.allowing(q) != nil {
				return g
			}
		}
		return nil
	}
	var among uint16
	for _, id := range q.targets[:q.n] {
		among |= sc.mentions[id]
	}
	for ; among != 0; among &= among - 1 {
		if g := sc.grants[bits.TrailingZeros16(among)]; g.role.table.allowing(q) != nil {
			return g
		}
	}
	return nil
}

// in is the scope of s for a namespace, or cluster-wide for an empty one; nil when nothing is bound there.
func (s *subject) in(namespace string) *scope {
	if s == nil {
		return nil
	}
	if namespace == "" {
		return s.cluster
	}
	return s.namespaces[namespace]
}

// scopes are what counts for u in namespace: cluster-wide bindings first, as Kubernetes has it.
func (x *index) scopes(u user.Info, namespace string) iter.Seq[*scope] {
	return func(yield func(*scope) bool) {
		for _, at := range [...]string{"", namespace} {
			if sc := x.users[u.GetName()].in(at); sc != nil && !yield(sc) {
				return
			}
			for _, g := range u.GetGroups() {
				if sc := x.groups[g].in(at); sc != nil && !yield(sc) {
					return
				}
			}
			if namespace == "" {
				return
			}
		}
	}
}

// allowing is the first grant to u that allows q, nil when none does.
func (x *index) allowing(u user.Info, namespace string, q *question) *grant {
	if q.resource && q.n == 0 {
		return nil // no rule of anybody speaks of it
	}
	for sc := range x.scopes(u, namespace) {
		if g := sc.allowing(q); g != nil {
			return g
		}
	}
	return nil
}

// missing are the roles that are bound to u in namespace and do not exist. A refused user may need to know.
func (x *index) missing(u user.Info, namespace string) []error {
	var errs []error
	for sc := range x.scopes(u, namespace) {
		errs = append(errs, sc.missing...)
	}
	return errs
}
