package adoption

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
)

// AdoptedRole is the name of the ClusterRole by which the gateway may write the APIServices that it serves, and no others.
func (g Service) AdoptedRole() string { return g.Name + "-adopted" }

// grants are the rules by which a gateway may write one APIService. Each rule has one resource, so that a role is the same whether
// Grant or `kubectl auth reconcile` adds them.
func grants(apiService string) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, resource := range []string{"apiservices", "apiservices/status"} {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{resource}, ResourceNames: []string{apiService}, Verbs: []string{"update"},
		})
	}
	return rules
}

// Grant adds to the role of a gateway the rules that it needs for an APIService and lacks, and reports whether it changed anything.
func Grant(role *rbacv1.ClusterRole, apiService string) (changed bool) {
	for _, rule := range grants(apiService) {
		if !slices.ContainsFunc(role.Rules, func(have rbacv1.PolicyRule) bool { return includes(have, rule) }) {
			role.Rules, changed = append(role.Rules, rule), true
		}
	}
	return changed
}

// includes reports whether one rule allows everything that another one does, which has one value in each list.
func includes(rule, other rbacv1.PolicyRule) bool {
	has := func(list, want []string) bool { return slices.Contains(list, want[0]) || slices.Contains(list, "*") }
	return has(rule.APIGroups, other.APIGroups) && has(rule.Resources, other.Resources) && has(rule.Verbs, other.Verbs) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, other.ResourceNames[0]))
}

// Revoke removes an APIService from the rules of the role, and reports whether it changed anything. It removes rules that name nothing
// more, because a rule without names allows all.
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
