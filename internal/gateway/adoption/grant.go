package adoption

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
)

// AdoptedRole returns the name of the ClusterRole that permits the gateway to write only the APIServices that it
// serves.
func (g Service) AdoptedRole() string { return g.Name + "-adopted" }

// grants returns the rules that permit a gateway to write one APIService. Each rule has one resource, so that Grant
// and `kubectl auth reconcile` produce the same role.
func grants(apiService string) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, resource := range []string{"apiservices", "apiservices/status"} {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{resource}, ResourceNames: []string{apiService}, Verbs: []string{"update"},
		})
	}
	return rules
}

// Grant adds the missing rules for an APIService to the role of a gateway, and reports whether it changed the role.
func Grant(role *rbacv1.ClusterRole, apiService string) (changed bool) {
	for _, rule := range grants(apiService) {
		if !slices.ContainsFunc(role.Rules, func(have rbacv1.PolicyRule) bool { return includes(have, rule) }) {
			role.Rules, changed = append(role.Rules, rule), true
		}
	}
	return changed
}

// includes reports whether rule permits everything that other permits. Each list of other must have exactly one
// value.
func includes(rule, other rbacv1.PolicyRule) bool {
	has := func(list, want []string) bool { return slices.Contains(list, want[0]) || slices.Contains(list, "*") }
	return has(rule.APIGroups, other.APIGroups) && has(rule.Resources, other.Resources) && has(rule.Verbs, other.Verbs) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, other.ResourceNames[0]))
}

// Revoke removes an APIService from the rules of the role, and reports whether it changed the role. It deletes rules
// without remaining names, because a rule without names permits all.
func Revoke(role *rbacv1.ClusterRole, apiService string) (changed bool) {
	kept := []rbacv1.PolicyRule{}
	for _, rule := range role.Rules {
		if slices.Contains(rule.ResourceNames, apiService) {
			changed = true
			rule.ResourceNames = slices.DeleteFunc(slices.Clone(rule.ResourceNames), func(name string) bool { return name == apiService })
			if len(rule.ResourceNames) == 0 {
				continue
			}
		}
		kept = append(kept, rule)
	}
	role.Rules = kept
	return changed
}
