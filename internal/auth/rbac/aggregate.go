package rbac

import (
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Aggregate returns the rules of every ClusterRole by name. The rules of an aggregated role are collected from the
// roles that its selectors match, transitively.
//
// In Kubernetes a controller writes the collected rules into the role. Here the index collects them, so that
// decisions do not depend on the controller: a newly labeled role takes effect with its event, and rules written by
// hand into an aggregated role are ignored (the controller would overwrite them). If the controller runs as well, the
// results are the same.
//
// Code that needs the rules of a role, in particular for escalation checks, must use this function or
// [RBAC.RoleRules], because the stored rules of an aggregated role may be empty or outdated.
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

// gather collects the rules of r along its selectors, in the order in which the controller would write them. Roles
// may select each other, so each role is visited once.
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
			continue // the API refuses invalid selectors; treat one as selecting nothing
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

// all returns every role, for selectors that match roles without labels. Usual selectors do not.
func (a *aggregation) all() []*rbacv1.ClusterRole {
	return slices.SortedFunc(maps.Values(a.roles), func(x, y *rbacv1.ClusterRole) int { return strings.Compare(x.Name, y.Name) })
}
