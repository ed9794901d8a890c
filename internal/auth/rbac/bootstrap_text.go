package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// rolesIn parses ClusterRoles from text: the name of a role on a line, followed by indented rules, one per line. A
// rule consists of verbs, resources in the syntax of `kubectl create clusterrole` (pods,deployments.apps/status) and
// optional resource names. As in any PolicyRule, a rule with resources of several groups applies to each resource in
// each group.
func rolesIn(text string) []*rbacv1.ClusterRole {
	var roles []*rbacv1.ClusterRole
	for line := range strings.Lines(text) {
		rule, indented := strings.CutPrefix(line, "\t")
		switch words := strings.Fields(rule); {
		case len(words) == 0:
		case !indented:
			roles = append(roles, clusterRole(words[0]))
		default:
			last := roles[len(roles)-1]
			last.Rules = append(last.Rules, ruleIn(words))
		}
	}
	return roles
}

// ruleIn parses a rule. It keeps the order of the words and removes duplicates.
func ruleIn(words []string) rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{Verbs: strings.Split(words[0], ",")}
	for word := range strings.SplitSeq(words[1], ",") {
		word, sub, isSub := strings.Cut(word, "/")
		resource, group, _ := strings.Cut(word, ".")
		if isSub {
			resource += "/" + sub
		}
		if !slices.Contains(r.Resources, resource) {
			r.Resources = append(r.Resources, resource)
		}
		if !slices.Contains(r.APIGroups, group) {
			r.APIGroups = append(r.APIGroups, group)
		}
	}
	if len(words) > 2 {
		r.ResourceNames = strings.Split(words[2], ",")
	}
	return r
}
