package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// rolesIn reads what is best read as a list: the name of a ClusterRole, and below it, indented, a rule a line. A rule is verbs
// and resources, as `kubectl create clusterrole` takes them (pods,deployments.apps/status), and the names that it is for, if it
// is for some only. Resources of several groups in one rule are those of each group, as rules are, and are all written down.
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

// ruleIn makes the rule that the words name, with everything in their order, each thing once.
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
