package rbac

import (
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Aggregate returns the rules of every ClusterRole by name, those of aggregated ones gathered from the roles that
// their selectors match, however many steps away.
//
// In Kubernetes a controller writes the gathered rules into the role. Here the index gathers, so that a decision never
// waits for a controller and does not depend on one: a role that is labelled takes effect with the same event that
// brought it, and rules that were written by hand into an aggregated role mean nothing, which is what the controller
// would make of them. If such a controller runs as well, both arrive at the same rules.
//
// Code that needs the rules of a role (an escalation check, above all) must use this or [RBAC.RoleRules] and not the stored
// rules: those of an aggregated role are empty or out of date.
func Aggregate(roles []*rbacv1.ClusterRole) map[string][]rbacv1.PolicyRule {
	a := aggregation{
		roles: make(map[string]*rbacv1.ClusterRole, len(roles)),
		rules: make(map[string][]rbacv1.PolicyRule, len(roles)),
	}
	for _, r := range roles {
		a.roles[r.Name] = r
		if len(r.Labels) > 0 {
			a.labelled = append(a.labelled, r)
		}
	}
	slices.SortFunc(a.labelled, func(x, y *rbacv1.ClusterRole) int { return strings.Compare(x.Name, y.Name) })
	for _, r := range roles {
		a.rules[r.Name] = a.gather(r)
	}
	return a.rules
}

type aggregation struct {
	roles    map[string]*rbacv1.ClusterRole
	labelled []*rbacv1.ClusterRole
	rules    map[string][]rbacv1.PolicyRule
}

// gather walks from r along its selectors, in the order of a controller that writes each step. Each role is visited
// once: roles may select each other.
func (a *aggregation) gather(r *rbacv1.ClusterRole) []rbacv1.PolicyRule {
	if r.AggregationRule == nil {
		return r.Rules
	}
	return a.walk(r, map[string]bool{r.Name: true}, nil)
}

func (a *aggregation) walk(r *rbacv1.ClusterRole, visited map[string]bool, rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	for _, next := range a.selected(r.AggregationRule) {
		if visited[next.Name] {
			continue
		}
		visited[next.Name] = true
		if next.AggregationRule == nil {
			rules = append(rules, next.Rules...)
		} else {
			rules = a.walk(next, visited, rules)
		}
	}
	return rules
}

func (a *aggregation) selected(rule *rbacv1.AggregationRule) []*rbacv1.ClusterRole {
	var found []*rbacv1.ClusterRole
	for i := range rule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&rule.ClusterRoleSelectors[i])
		if err != nil {
			continue // the API does not accept one; a broken selector selects nothing
		}
		among := a.labelled
		if selector.Empty() || selector.Matches(labels.Set{}) {
			among = a.all()
		}
		for _, r := range among {
			if selector.Matches(labels.Set(r.Labels)) {
				found = append(found, r)
			}
		}
	}
	return found
}

// all is for selectors that match roles without labels; the usual ones never do.
func (a *aggregation) all() []*rbacv1.ClusterRole {
	return slices.SortedFunc(maps.Values(a.roles), func(x, y *rbacv1.ClusterRole) int { return strings.Compare(x.Name, y.Name) })
}
