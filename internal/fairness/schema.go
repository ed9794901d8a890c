package fairness

import (
	"slices"
	"strings"
	"sync/atomic"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/metrics"
)

// schema is a FlowSchema as requests are compared with it, and where it leads.
type schema struct {
	object *flowcontrolv1.FlowSchema
	of     *flowcontrolv1.PriorityLevelConfiguration
	level  *level
	seen   *metrics.Flow
	// What a response says of who was taken for what: shared, and never written to.
	schemaUID, levelUID []string

	latest *atomic.Pointer[flow]
	by     flowcontrolv1.FlowDistinguisherMethodType // empty: one flow
	rules  []rule
}

// rule takes a request if one of its subjects and one of its rules for resources, or for paths, does.
type rule struct {
	anybody       bool
	users, groups []string
	accounts      []flowcontrolv1.ServiceAccountSubject
	resources     []flowcontrolv1.ResourcePolicyRule
	paths         []flowcontrolv1.NonResourcePolicyRule
}

func compileSchema(s *flowcontrolv1.FlowSchema, of *flowcontrolv1.PriorityLevelConfiguration, l *level, m *metrics.Fairness) schema {
	c := schema{
		object: s, of: of, level: l, seen: m.Flow(of.Name, s.Name), schemaUID: []string{string(s.UID)}, levelUID: []string{string(of.UID)},
		latest: new(atomic.Pointer[flow]),
	}
	if m := s.Spec.DistinguisherMethod; m != nil {
		c.by = m.Type
	}
	for _, policy := range s.Spec.Rules {
		r := rule{resources: policy.ResourceRules, paths: policy.NonResourceRules}
		for _, subject := range policy.Subjects {
			r.add(subject)
		}
		c.rules = append(c.rules, r)
	}
	return c
}

func (r *rule) add(s flowcontrolv1.Subject) {
	switch {
	case s.Kind == flowcontrolv1.SubjectKindUser && s.User != nil:
		r.anybody = r.anybody || s.User.Name == flowcontrolv1.NameAll
		r.users = append(r.users, s.User.Name)
	case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil:
		r.anybody = r.anybody || s.Group.Name == flowcontrolv1.NameAll
		r.groups = append(r.groups, s.Group.Name)
	case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
		r.accounts = append(r.accounts, *s.ServiceAccount)
	}
}

// find is the first schema that takes the request. What none takes goes where the last one leads.
func find(all []schema, who user.Info, info *apirequest.RequestInfo) *schema {
	name, groups := who.GetName(), who.GetGroups()
	for i := range all {
		for j := range all[i].rules {
			if r := &all[i].rules[j]; r.holds(name, groups) && r.covers(info) {
				return &all[i]
			}
		}
	}
	for i := range all {
		if all[i].object.Name == flowcontrolv1.FlowSchemaNameCatchAll {
			return &all[i]
		}
	}
	return &all[len(all)-1]
}

// holds reports whether the rule speaks of somebody.
func (r *rule) holds(name string, groups []string) bool {
	if r.anybody || slices.Contains(r.users, name) {
		return true
	}
	for _, g := range r.groups {
		if slices.Contains(groups, g) {
			return true
		}
	}
	for i := range r.accounts {
		if accountIs(&r.accounts[i], name) {
			return true
		}
	}
	return false
}

func accountIs(a *flowcontrolv1.ServiceAccountSubject, name string) bool {
	if a.Name != flowcontrolv1.NameAll {
		return serviceaccount.MatchesUsername(a.Namespace, a.Name, name)
	}
	rest, found := strings.CutPrefix(name, serviceaccount.ServiceAccountUsernamePrefix)
	if !found {
		return false
	}
	rest, found = strings.CutPrefix(rest, a.Namespace)
	return found && strings.HasPrefix(rest, serviceaccount.ServiceAccountUsernameSeparator)
}

// covers reports whether the rule speaks of what is asked for.
func (r *rule) covers(info *apirequest.RequestInfo) bool {
	if !info.IsResourceRequest {
		for i := range r.paths {
			if p := &r.paths[i]; among(info.Verb, p.Verbs) && pathAmong(info.Path, p.NonResourceURLs) {
				return true
			}
		}
		return false
	}
	for i := range r.resources {
		p := &r.resources[i]
		if among(info.Verb, p.Verbs) && resourceAmong(info, p.Resources) && among(info.APIGroup, p.APIGroups) && placeAmong(info.Namespace, p) {
			return true
		}
	}
	return false
}

func placeAmong(namespace string, p *flowcontrolv1.ResourcePolicyRule) bool {
	if namespace == "" {
		return p.ClusterScope
	}
	return among(namespace, p.Namespaces)
}

// among reports whether list has s. A list of a star alone has everything.
func among(s string, list []string) bool {
	return len(list) == 1 && list[0] == "*" || slices.Contains(list, s)
}

func resourceAmong(info *apirequest.RequestInfo, list []string) bool {
	if info.Subresource == "" || len(list) == 1 && list[0] == "*" {
		return among(info.Resource, list)
	}
	for _, s := range list {
		resource, sub, _ := strings.Cut(s, "/")
		if resource == info.Resource && sub == info.Subresource {
			return true
		}
	}
	return false
}

// pathAmong reports whether list has path or what it is below. The star at the end of a path is optional.
func pathAmong(path string, list []string) bool {
	for _, s := range list {
		if s == "*" || s == path {
			return true
		}
		above := strings.TrimSuffix(strings.TrimSuffix(s, "*"), "/")
		if rest, below := strings.CutPrefix(path, above); below && strings.HasPrefix(rest, "/") {
			return true
		}
	}
	return false
}
