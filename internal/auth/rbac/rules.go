package rbac

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Rules are the built-in rules of an authorizer.
type Rules struct {
	table table
	known targets
}

// NewRules indexes rules.
func NewRules(rules []rbacv1.PolicyRule) *Rules {
	r := &Rules{known: targets{}}
	r.table.add(rules, &grant{}, r.known)
	return r
}

// Allow reports whether a rule allows the request, regardless of its user.
func (r *Rules) Allow(a authorizer.Attributes) bool {
	q := newQuestion(a, r.known)
	return r.table.allowing(&q) != nil
}

// NodeRules returns the built-in rules of the ClusterRole system:node, independent of the stored role. They cover the
// permissions of nodes that do not depend on individual objects.
func NodeRules() []rbacv1.PolicyRule {
	roles := rolesIn(componentRoles)
	return roles[slices.IndexFunc(roles, func(r *rbacv1.ClusterRole) bool { return r.Name == "system:node" })].Rules
}
