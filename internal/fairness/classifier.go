package fairness

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	informers "k8s.io/client-go/informers/flowcontrol/v1"
	listers "k8s.io/client-go/listers/flowcontrol/v1"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/metrics"
)

// classifier contains the levels created by k8s.io/apiserver's controller, and the snapshot that classifies requests.
type classifier struct {
	metrics        *metrics.Fairness
	schemas        listers.FlowSchemaLister
	configurations listers.PriorityLevelConfigurationLister
	snapshot       atomic.Pointer[[]schema] // in matching order; the last one matches everything

	mu     sync.Mutex // guards levels, and ensures that the snapshot corresponds to the latest objects
	levels map[string]*level
}

// newClassifier returns a classifier that recompiles the snapshot after each change of an object.
func newClassifier(known informers.Interface, m *metrics.Fairness) (*classifier, error) {
	k := &classifier{
		metrics: m,
		schemas: known.FlowSchemas().Lister(), configurations: known.PriorityLevelConfigurations().Lister(), levels: map[string]*level{},
	}
	changed := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { k.compile() }, UpdateFunc: func(any, any) { k.compile() }, DeleteFunc: func(any) { k.compile() },
	}
	for _, informer := range []cache.SharedIndexInformer{known.FlowSchemas().Informer(), known.PriorityLevelConfigurations().Informer()} {
		if _, err := informer.AddEventHandler(changed); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// levelNamed returns known, or the registered level of that name, or a new one.
func (k *classifier) levelNamed(name string, known *level) *level {
	if known != nil {
		return known
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.levels[name]; l != nil {
		return l
	}
	return &level{name: name}
}

// register registers l under its name.
func (k *classifier) register(l *level) {
	k.mu.Lock()
	known := k.levels[l.name] == l
	k.levels[l.name] = l
	k.mu.Unlock()
	if !known {
		k.compile()
	}
}

// compile compiles the stored objects into the snapshot. Missing mandatory objects are replaced by the defaults of
// k8s.io/apiserver.
func (k *classifier) compile() {
	k.mu.Lock()
	defer k.mu.Unlock()
	objects := map[string]*flowcontrolv1.PriorityLevelConfiguration{}
	stored, _ := k.configurations.List(labels.Everything()) // a cache returns no errors
	for _, o := range stored {
		objects[o.Name] = o
	}
	objectsInOrder := k.orderedSchemas(objects)
	for _, o := range bootstrap.MandatoryPriorityLevelConfigurations {
		if objects[o.Name] == nil {
			objects[o.Name] = o
		}
	}
	for name, l := range k.levels {
		if objects[name] == nil && l.state.Load() == 0 {
			delete(k.levels, name)
		}
	}
	var schemas []schema
	for _, s := range objectsInOrder {
		at := s.Spec.PriorityLevelConfiguration.Name
		if level, object := k.levels[at], objects[at]; level != nil && object != nil {
			schemas = append(schemas, compileSchema(s, object, level, k.metrics))
		}
	}
	k.snapshot.Store(&schemas)
}

// orderedSchemas returns the schemas in matching order: by precedence, then by name. A schema without a stored level matches
// nothing, as its status reports. If the mandatory schemas are not stored, exempt is first and catch-all last.
func (k *classifier) orderedSchemas(levels map[string]*flowcontrolv1.PriorityLevelConfiguration) (all []*flowcontrolv1.FlowSchema) {
	known, _ := k.schemas.List(labels.Everything())
	for _, s := range known {
		if levels[s.Spec.PriorityLevelConfiguration.Name] != nil {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *flowcontrolv1.FlowSchema) int {
		if a.Spec.MatchingPrecedence != b.Spec.MatchingPrecedence {
			return int(a.Spec.MatchingPrecedence) - int(b.Spec.MatchingPrecedence)
		}
		return strings.Compare(a.Name, b.Name)
	})
	stored := func(name string) bool {
		return slices.ContainsFunc(all, func(s *flowcontrolv1.FlowSchema) bool { return s.Name == name })
	}
	if !stored(flowcontrolv1.FlowSchemaNameExempt) {
		all = slices.Insert(all, 0, bootstrap.MandatoryFlowSchemaExempt)
	}
	if !stored(flowcontrolv1.FlowSchemaNameCatchAll) {
		all = append(all, bootstrap.MandatoryFlowSchemaCatchAll)
	}
	return all
}

// schema is a compiled FlowSchema with its level.
type schema struct {
	object      *flowcontrolv1.FlowSchema
	levelObject *flowcontrolv1.PriorityLevelConfiguration
	level       *level
	metrics     *metrics.Flow
	// Values of the classification headers in a response. Shared and never modified.
	schemaUID, levelUID []string

	lastFlow            *atomic.Pointer[flow]
	distinguisherMethod flowcontrolv1.FlowDistinguisherMethodType // empty: one flow
	rules               []rule
}

// rule matches a request if one of its subjects matches and one of its resource rules or path rules matches.
type rule struct {
	anySubject      bool
	users, groups   []string
	serviceAccounts []flowcontrolv1.ServiceAccountSubject
	resources       []flowcontrolv1.ResourcePolicyRule
	paths           []flowcontrolv1.NonResourcePolicyRule
}

func compileSchema(s *flowcontrolv1.FlowSchema, of *flowcontrolv1.PriorityLevelConfiguration, l *level, m *metrics.Fairness) schema {
	c := schema{
		object: s, levelObject: of, level: l, metrics: m.Flow(of.Name, s.Name), schemaUID: []string{string(s.UID)}, levelUID: []string{string(of.UID)},
		lastFlow: new(atomic.Pointer[flow]),
	}
	if m := s.Spec.DistinguisherMethod; m != nil {
		c.distinguisherMethod = m.Type
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
		r.anySubject = r.anySubject || s.User.Name == flowcontrolv1.NameAll
		r.users = append(r.users, s.User.Name)
	case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil:
		r.anySubject = r.anySubject || s.Group.Name == flowcontrolv1.NameAll
		r.groups = append(r.groups, s.Group.Name)
	case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
		r.serviceAccounts = append(r.serviceAccounts, *s.ServiceAccount)
	}
}

// classify returns the first schema that matches the request, or catch-all if none matches.
func classify(all []schema, who user.Info, info *apirequest.RequestInfo) *schema {
	name, groups := who.GetName(), who.GetGroups()
	for i := range all {
		for j := range all[i].rules {
			if r := &all[i].rules[j]; r.matchesSubject(name, groups) && r.matchesRequest(info) {
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

// matchesSubject reports whether the rule applies to this user.
func (r *rule) matchesSubject(name string, groups []string) bool {
	if r.anySubject || slices.Contains(r.users, name) {
		return true
	}
	for _, g := range r.groups {
		if slices.Contains(groups, g) {
			return true
		}
	}
	for i := range r.serviceAccounts {
		if accountIs(&r.serviceAccounts[i], name) {
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

// matchesRequest reports whether the rule applies to the requested resource or path.
func (r *rule) matchesRequest(info *apirequest.RequestInfo) bool {
	if !info.IsResourceRequest {
		for i := range r.paths {
			if p := &r.paths[i]; listed(info.Verb, p.Verbs) && pathListed(info.Path, p.NonResourceURLs) {
				return true
			}
		}
		return false
	}
	for i := range r.resources {
		p := &r.resources[i]
		if listed(info.Verb, p.Verbs) && resourceListed(info, p.Resources) && listed(info.APIGroup, p.APIGroups) && scopeListed(info.Namespace, p) {
			return true
		}
	}
	return false
}

func scopeListed(namespace string, p *flowcontrolv1.ResourcePolicyRule) bool {
	if namespace == "" {
		return p.ClusterScope
	}
	return listed(namespace, p.Namespaces)
}

// listed reports whether list contains s. A list with only a star contains everything.
func listed(s string, list []string) bool {
	return len(list) == 1 && list[0] == "*" || slices.Contains(list, s)
}

func resourceListed(info *apirequest.RequestInfo, list []string) bool {
	if info.Subresource == "" || len(list) == 1 && list[0] == "*" {
		return listed(info.Resource, list)
	}
	for _, s := range list {
		resource, sub, _ := strings.Cut(s, "/")
		if resource == info.Resource && sub == info.Subresource {
			return true
		}
	}
	return false
}

// pathListed reports whether list contains path or a parent of it. The star at the end of a listed path is optional.
func pathListed(path string, list []string) bool {
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
