package why

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// ruleLacks is what would have to be in the rule for it to allow q.
func ruleLacks(r rbacv1.PolicyRule, q Question) []string {
	var lacks []string
	if !hasOrAll(r.Verbs, q.Verb) {
		lacks = append(lacks, fmt.Sprintf("verb %s (it has %s)", q.Verb, list(r.Verbs)))
	}
	if q.Path != "" {
		if !slices.ContainsFunc(r.NonResourceURLs, func(u string) bool { return covers(u, q.Path) }) {
			lacks = append(lacks, "path "+q.Path)
			if len(r.NonResourceURLs) == 0 {
				lacks = append(lacks, "paths at all (it is about resources)")
			}
		}
		return lacks
	}
	if len(r.NonResourceURLs) > 0 {
		return append(lacks, "resources at all (it is about paths)", "resource "+q.resource())
	}
	if !hasOrAll(r.APIGroups, q.Group) {
		lacks = append(lacks, fmt.Sprintf("API group %q (it has %s)", q.Group, list(r.APIGroups)))
	}
	if !slices.ContainsFunc(r.Resources, func(have string) bool { return resourceCovers(have, q) }) {
		lacks = append(lacks, fmt.Sprintf("resource %s (it has %s)", q.resource(), list(r.Resources)))
	}
	if len(r.ResourceNames) > 0 && !slices.Contains(r.ResourceNames, q.Name) {
		if q.Name == "" {
			lacks = append(lacks, fmt.Sprintf("every name: it is for %s alone, and the request names none", list(r.ResourceNames)))
		} else {
			lacks = append(lacks, fmt.Sprintf("name %s (it has %s)", q.Name, list(r.ResourceNames)))
		}
	}
	return lacks
}

func (q Question) resource() string {
	if q.Subresource == "" {
		return q.Resource
	}
	return q.Resource + "/" + q.Subresource
}

func hasOrAll(have []string, want string) bool {
	return slices.Contains(have, want) || slices.Contains(have, "*")
}

// resourceCovers follows RBAC: "*" is every resource and subresource, "*/scale" that subresource of every resource.
func resourceCovers(have string, q Question) bool {
	return have == "*" || have == q.resource() || q.Subresource != "" && have == "*/"+q.Subresource
}

func covers(url, path string) bool {
	if prefix, ok := strings.CutSuffix(url, "*"); ok {
		return strings.HasPrefix(path, prefix)
	}
	return url == path
}

// maxListed bounds what is told of a long rule.
const maxListed = 8

func list(all []string) string {
	if len(all) == 0 {
		return "none"
	}
	quoted := make([]string, 0, maxListed)
	for _, s := range all[:min(len(all), maxListed)] {
		if s == "" {
			s = `""`
		}
		quoted = append(quoted, s)
	}
	if more := len(all) - maxListed; more > 0 {
		quoted = append(quoted, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(quoted, ", ")
}

// sentence is a rule as a person would say it.
func sentence(r rbacv1.PolicyRule) string {
	if len(r.NonResourceURLs) > 0 {
		return fmt.Sprintf("%s on paths %s", list(r.Verbs), list(r.NonResourceURLs))
	}
	text := fmt.Sprintf("%s on %s", list(r.Verbs), list(r.Resources))
	if !slices.Equal(r.APIGroups, []string{""}) {
		text += " in API groups " + list(r.APIGroups)
	}
	if len(r.ResourceNames) > 0 {
		text += " named " + list(r.ResourceNames)
	}
	return text
}

// String is the question as a person would ask it.
func (q Question) String() string {
	text := q.User + " " + q.Verb + " "
	if q.Path != "" {
		return text + q.Path
	}
	text += q.resource()
	if q.Group != "" {
		text += " in API group " + q.Group
	}
	if q.Name != "" {
		text += " named " + q.Name
	}
	if q.Namespace != "" {
		return text + " in namespace " + q.Namespace
	}
	return text + " in the whole cluster"
}
