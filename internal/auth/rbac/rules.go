package rbac

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Rules are the rules of one role, for an authorizer that has them built in.
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

// Allow reports whether a rule allows what is asked, whoever asks.
func (r *Rules) Allow(a authorizer.Attributes) bool {
	q := ask(a, r.known)
	return r.table.allowing(&q) != nil
}

// NodeRules are the rules of the ClusterRole system:node as this version has it, whatever is stored: what nodes may do that is not
// about single objects.
func NodeRules() []rbacv1.PolicyRule {
	roles := rolesIn(componentRoles)
	return roles[slices.IndexFunc(roles, func(r *rbacv1.ClusterRole) bool { return r.Name == "system:node" })].Rules
}
