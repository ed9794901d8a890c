package rbac

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Policy is a set of roles and bindings.
type Policy struct {
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
	// Bindings are additional bindings of both kinds.
	Bindings []*Binding
}

// index is a compiled Policy. It is immutable; changes create a new one.
type index struct {
	users  subjectMap // service accounts are here too, under their user names
	groups subjectMap
	roles  roles
}

// subject holds the grants of one user or group. There may be as many as users, so it is kept small.
type subject struct {
	bindings []*Binding // the bindings that name the subject
	cluster  *scope
	// Most subjects have bindings in one namespace, and a map with one entry would be larger than the other fields
	// together.
	only       scope
	onlyIn     string            // empty if there are no namespaced bindings
	namespaces map[string]*scope // further namespaces

	// The usual content is allocated inline, so that a garbage collection visits one object instead of four.
	firstBy     [1]*Binding
	firstGrant  grant
	firstGrants [1]*grant
}

// grant is a binding of a role to a subject.
type grant struct {
	role       *role
	source     source
	reasonText atomic.Pointer[string] // the reason, computed on first use; most grants never need it
}

// source is the binding of a grant, and the binding's subject.
type source struct {
	*Binding
	subject *bindingSubject
}

// reason returns the reason for an allowed request, in upstream's words.
func (g *grant) reason() string {
	if said := g.reasonText.Load(); said != nil {
		return *said
	}
	name := func(name, namespace string) string {
		if namespace == "" {
			return name
		}
		return name + "/" + namespace
	}
	subject, of, ref := g.source.subject.name, g.source.subject.kind.Value(), g.source.ref.Value()
	if of.kind == rbacv1.ServiceAccountKind {
		subject = name(subject, cmp.Or(of.namespace, g.source.namespace))
	}
	said := fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s %q",
		g.source.kind(), name(g.source.name, g.source.namespace), ref.Kind, ref.Name, of.kind, subject)
	g.reasonText.Store(&said)
	return said
}

// role is a compiled role, shared by all bindings to it.
type role struct {
	rules []rbacv1.PolicyRule
	table table
}

// some is the grant in a role's table, where the binding is known only to the caller.
var some = &grant{}

func newIndex(p Policy) *index {
	x := &index{roles: compileRoles(p)}
	for _, b := range p.bindings() {
		x.bind(b)
	}
	x.prepare()
	return x
}

// bind adds the grants of a binding to its subjects.
func (x *index) bind(b *Binding) {
	for i := range b.subjects {
		if all, name := x.place(&b.subjects[i], b.namespace); all != nil {
			x.grant(all.entry(name), b, i)
		}
	}
}

// grant adds the role of a binding to its subject at i, which is to. It records a role that does not exist.
func (x *index) grant(to *subject, b *Binding, i int) {
	if to.bindings == nil {
		to.bindings = to.firstBy[:0]
	}
	if len(to.bindings) == 0 || to.bindings[len(to.bindings)-1] != b { // a binding may name a subject twice
		to.bindings = append(to.bindings, b)
	}
	found, missing := x.roles.find(b.namespace, b.ref.Value())
	by := source{b, &b.subjects[i]}
	sc := to.scope(b.namespace)
	if missing != nil {
		sc.more().missing = append(sc.more().missing, missing)
		return
	}
	// A second binding of the same role to the same subject does not change decisions. Informers list in random
	// order. Keeping the first binding by name makes the reason the same on every replica.
	same := slices.IndexFunc(sc.grants, func(g *grant) bool { return g.role == found })
	switch {
	case same < 0 && to.firstGrant.role == nil:
		to.firstGrant.role, to.firstGrant.source = found, by
		sc.grants = append(to.firstGrants[:0], &to.firstGrant)
	case same < 0:
		sc.grants = append(sc.grants, &grant{role: found, source: by})
	case b.name < sc.grants[same].source.name:
		sc.grants[same].source = by
	}
}

// place returns the map and the key for grants to s, or nil if s does not identify a subject.
func (x *index) place(s *bindingSubject, namespace string) (*subjectMap, string) {
	switch of := s.kind.Value(); of.kind {
	case rbacv1.UserKind:
		return &x.users, s.name
	case rbacv1.GroupKind:
		return &x.groups, s.name
	case rbacv1.ServiceAccountKind:
		if of.namespace != "" {
			namespace = of.namespace
		}
		if namespace == "" {
			return nil, ""
		}
		return &x.users, serviceaccount.MakeUsername(namespace, s.name)
	}
	return nil, ""
}

func (s *subject) scope(namespace string) *scope {
	if namespace == "" {
		if s.cluster == nil {
			s.cluster = &scope{}
		}
		return s.cluster
	}
	switch {
	case s.onlyIn == "":
		s.onlyIn = namespace
		return &s.only
	case s.onlyIn == namespace:
		return &s.only
	case s.namespaces == nil:
		s.namespaces = make(map[string]*scope)
	}
	sc := s.namespaces[namespace]
	if sc == nil {
		sc = &scope{}
		s.namespaces[namespace] = sc
	}
	return sc
}

func (x *index) prepare() {
	for _, all := range []*subjectMap{&x.users, &x.groups} {
		for _, m := range all {
			for _, s := range m {
				s.prepare(x.roles.targets)
			}
		}
	}
}

func (s *subject) prepare(known targets) {
	s.cluster.prepare(known)
	s.only.prepare(known)
	for _, sc := range s.namespaces {
		sc.prepare(known)
	}
}

// in returns the scope of s for a namespace, or the cluster-wide scope for an empty one. It returns nil if nothing is
// bound there.
func (s *subject) in(namespace string) *scope {
	if s == nil {
		return nil
	}
	if namespace == "" {
		return s.cluster
	}
	if s.onlyIn == namespace {
		return &s.only
	}
	return s.namespaces[namespace]
}

// scopes iterates over the scopes that apply to u in namespace, cluster-wide bindings first, as in Kubernetes.
func (x *index) scopes(u user.Info, namespace string) iter.Seq[*scope] {
	return func(yield func(*scope) bool) {
		for _, at := range [...]string{"", namespace} {
			if sc := x.users.get(u.GetName()).in(at); sc != nil && !yield(sc) {
				return
			}
			for _, g := range u.GetGroups() {
				if sc := x.groups.get(g).in(at); sc != nil && !yield(sc) {
					return
				}
			}
			if namespace == "" {
				return
			}
		}
	}
}

// allowing returns the first grant to u that allows q, or nil.
func (x *index) allowing(u user.Info, namespace string, q *question) *grant {
	if q.resource && q.n == 0 {
		return nil // no rule has a matching target
	}
	for sc := range x.scopes(u, namespace) {
		if g := sc.allowing(q); g != nil {
			return g
		}
	}
	return nil
}

// missing returns errors for roles that are bound to u in namespace but do not exist. They are part of the reason for
// a refusal.
func (x *index) missing(u user.Info, namespace string) []error {
	var errs []error
	for sc := range x.scopes(u, namespace) {
		if sc.rest != nil {
			errs = append(errs, sc.rest.missing...)
		}
	}
	return errs
}

// roles holds the compiled roles of a policy, by role reference.
type roles struct {
	cluster    map[string]*role
	namespaced map[[2]string]*role
	targets    targets
}

func compileRoles(p Policy) roles {
	all := roles{
		cluster:    make(map[string]*role, len(p.ClusterRoles)),
		namespaced: make(map[[2]string]*role, len(p.Roles)),
		targets:    make(targets),
	}
	for name, rules := range Aggregate(p.ClusterRoles) {
		all.cluster[name] = compile(rules, all.targets)
	}
	for _, r := range p.Roles {
		all.namespaced[[2]string{r.Namespace, r.Name}] = compile(r.Rules, all.targets)
	}
	return all
}

func compile(rules []rbacv1.PolicyRule, known targets) *role {
	r := &role{rules: rules}
	r.table.add(rules, some, known)
	return r
}

// find returns the role to which a binding in namespace refers. The errors are the same as in Kubernetes.
func (all roles) find(namespace string, to rbacv1.RoleRef) (*role, error) {
	switch {
	case to.Kind == "ClusterRole":
		if found := all.cluster[to.Name]; found != nil {
			return found, nil
		}
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterrole"}, to.Name)
	case to.Kind == "Role" && namespace != "":
		if found := all.namespaced[[2]string{namespace, to.Name}]; found != nil {
			return found, nil
		}
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName, Resource: "role"}, to.Name)
	}
	return nil, fmt.Errorf("unsupported role reference kind: %q", to.Kind)
}
