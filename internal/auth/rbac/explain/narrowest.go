package explain

import (
	"cmp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// NarrowestRole returns the role with the fewest rights that allows q: a Role in the namespace of q, or a ClusterRole. It returns
// an empty kind if there is none. It ignores roles of the control plane, whose names begin with system:, and roles that allow
// everything.
func NarrowestRole(p Objects, q Query) (kind, name string) {
	type role struct {
		kind, name string
		width      int
	}
	var roles []role
	add := func(kind, name string, rules []rbacv1.PolicyRule) {
		allows := slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return len(ruleLacks(r, q)) == 0 })
		if allows && !strings.HasPrefix(name, "system:") && !slices.ContainsFunc(rules, allowsEverything) {
			roles = append(roles, role{kind, name, width(rules)})
		}
	}
	if q.Namespace != "" {
		for _, r := range p.Roles {
			if r.Namespace == q.Namespace {
				add("Role", r.Name, r.Rules)
			}
		}
	}
	for _, r := range p.ClusterRoles {
		add("ClusterRole", r.Name, r.Rules)
	}
	if len(roles) == 0 {
		return "", ""
	}
	least := slices.MinFunc(roles, func(a, b role) int {
		return cmp.Or(cmp.Compare(a.width, b.width), -cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	return least.kind, least.name
}

func allowsEverything(r rbacv1.PolicyRule) bool {
	return slices.Contains(r.Verbs, "*") && (slices.Contains(r.Resources, "*") || slices.Contains(r.NonResourceURLs, "*"))
}

// width estimates the number of rights in rules, as pairs of a verb and a resource. It counts a wildcard, and a rule for all
// names, as 20.
func width(rules []rbacv1.PolicyRule) int {
	const wildcard = 20
	size := func(values []string) int {
		n := len(values)
		for _, v := range values {
			if strings.Contains(v, "*") {
				n += wildcard - 1
			}
		}
		return n
	}
	sum := 0
	for _, r := range rules {
		names := wildcard
		if len(r.ResourceNames) > 0 {
			names = len(r.ResourceNames)
		}
		sum += size(r.Verbs) * (size(r.APIGroups)*size(r.Resources)*names + size(r.NonResourceURLs))
	}
	return sum
}
