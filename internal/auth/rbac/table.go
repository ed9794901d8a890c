package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// table is an index of rules, either of one role or of all bindings of a subject with many. It is immutable
// once it is part of an index.
type table struct {
	resources map[targetID]verbs
	exact     map[string]verbs // complete non-resource URLs
	prefixes  []prefix         // non-resource URLs that end with a star
}

// target identifies the resources of a rule. "*" matches any group or any resource. "*" with a subresource matches
// that subresource of any resource.
type target struct {
	group, resource, subresource string
}

// targetID numbers a target within an index. Numbers are looked up once per request and then compared with many
// bindings, which keeps decisions for a user with fifty groups cheap.
type targetID int32

// targets numbers the targets of all rules.
type targets map[target]targetID

func (ts targets) number(t target) targetID {
	id, ok := ts[t]
	if !ok {
		id = targetID(len(ts))
		ts[t] = id
	}
	return id
}

// verbs maps the allowed verbs of a target to object names.
type verbs map[string]*names

// names holds the grants of a verb: for all objects, and for individual names.
type names struct {
	all  *grant
	only map[string]*grant
}

type prefix struct {
	path  string
	verbs verbs
}

// add indexes rules granted by g. Entries of earlier grants are kept.
func (t *table) add(rules []rbacv1.PolicyRule, g *grant, known targets) {
	for i := range rules {
		t.addRule(&rules[i], g, known)
	}
}

func (t *table) addRule(r *rbacv1.PolicyRule, g *grant, known targets) {
	if len(r.Resources) > 0 && t.resources == nil {
		t.resources = make(map[targetID]verbs, len(r.APIGroups)*len(r.Resources))
	}
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			at := target{group: group}
			at.resource, at.subresource = splitResource(resource)
			id := known.number(at)
			t.resources[id] = t.resources[id].add(r.Verbs, r.ResourceNames, g)
		}
	}
	for _, url := range r.NonResourceURLs {
		t.addURL(url, r.Verbs, g)
	}
}

func (t *table) addURL(url string, allowed []string, g *grant) {
	if !strings.HasSuffix(url, "*") {
		if t.exact == nil {
			t.exact = make(map[string]verbs)
		}
		t.exact[url] = t.exact[url].add(allowed, nil, g)
		return
	}
	path := strings.TrimRight(url, "*") // all trailing stars, as in Kubernetes
	i := slices.IndexFunc(t.prefixes, func(p prefix) bool { return p.path == path })
	if i < 0 {
		i = len(t.prefixes)
		t.prefixes = append(t.prefixes, prefix{path: path})
	}
	t.prefixes[i].verbs = t.prefixes[i].verbs.add(allowed, nil, g)
}

func (v verbs) add(allowed, only []string, g *grant) verbs {
	if v == nil {
		v = make(verbs, len(allowed))
	}
	for _, verb := range allowed {
		n := v[verb]
		if n == nil {
			n = &names{}
			v[verb] = n
		}
		n.add(only, g)
	}
	return v
}

func (n *names) add(only []string, g *grant) {
	if len(only) == 0 {
		if n.all == nil {
			n.all = g
		}
		return
	}
	if n.only == nil {
		n.only = make(map[string]*grant, len(only))
	}
	for _, name := range only {
		if n.only[name] == nil {
			n.only[name] = g
		}
	}
}

func (v verbs) allowing(verb, name string) *grant {
	if g := v[verb].allowing(name); g != nil {
		return g
	}
	return v[rbacv1.VerbAll].allowing(name)
}

func (n *names) allowing(name string) *grant {
	if n == nil {
		return nil
	}
	if n.all != nil {
		return n.all
	}
	return n.only[name]
}

// splitResource splits "pods/log". A name that ends with a slash is not split, so that a rule for "pods/" never
// matches "pods".
func splitResource(resource string) (name, subresource string) {
	if name, sub, ok := strings.Cut(resource, "/"); ok && sub != "" {
		return name, sub
	}
	return resource, ""
}

// question holds the attributes of a request, prepared for table lookups.
type question struct {
	resource   bool
	verb, name string
	path       string
	// targets are the targets that may match the request, in no particular order. Targets without rules are omitted.
	targets [6]targetID
	n       int
}

func newQuestion(a authorizer.Attributes, known targets) question {
	q := question{resource: a.IsResourceRequest(), verb: a.GetVerb(), name: a.GetName(), path: a.GetPath()}
	if !q.resource {
		return q
	}
	resource, sub := a.GetResource(), a.GetSubresource()
	exact := target{group: a.GetAPIGroup(), resource: resource, subresource: sub}
	if strings.Contains(resource, "/") {
		// This cannot come from a URL path, but from an access review. Kubernetes compares the joined form.
		if sub != "" {
			resource += "/" + sub
		}
		exact.resource, exact.subresource = splitResource(resource)
	}
	for _, group := range [...]string{exact.group, rbacv1.APIGroupAll} {
		q.add(target{group, exact.resource, exact.subresource}, known)
		q.add(target{group: group, resource: rbacv1.ResourceAll}, known)
		if sub != "" {
			q.add(target{group, rbacv1.ResourceAll, sub}, known)
		}
	}
	return q
}

func (q *question) add(t target, known targets) {
	if id, ok := known[t]; ok {
		q.targets[q.n] = id
		q.n++
	}
}

// allowing returns the grant that allows q, or nil.
func (t *table) allowing(q *question) *grant {
	if !q.resource {
		return t.allowingURL(q)
	}
	for _, at := range q.targets[:q.n] {
		if v, ok := t.resources[at]; ok {
			if g := v.allowing(q.verb, q.name); g != nil {
				return g
			}
		}
	}
	return nil
}

func (t *table) allowingURL(q *question) *grant {
	if g := t.exact[q.path].allowing(q.verb, ""); g != nil {
		return g
	}
	for _, p := range t.prefixes {
		if strings.HasPrefix(q.path, p.path) {
			if g := p.verbs.allowing(q.verb, ""); g != nil {
				return g
			}
		}
	}
	return nil
}
