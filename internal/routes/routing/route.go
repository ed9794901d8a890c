package routing

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"portico.dev/internal/routes/v1alpha1"
)

// Namespaces returns the labels of a namespace. It returns false if the namespace does not exist. It must not block.
type Namespaces func(name string) (labels.Set, bool)

// Route is the compiled APIRoute of a group-version. It is immutable, except for the counts of ErrorRates.
type Route struct {
	GroupVersion schema.GroupVersion
	// UID and Generation are the APIRoute's.
	UID        types.UID
	Generation int64
	// RolledBack is the result of RolledBack for the APIRoute.
	RolledBack string
	// Backends are the backends of the spec. Callers must not change them.
	Backends []v1alpha1.APIRouteBackend

	rules      []rule
	choices    []*Choice // the last one is for requests that no rule matches
	namespaces Namespaces
	// customResources is the index of the backend with custom resources, or -1.
	customResources int
}

type rule struct {
	name     string
	matches  []condition
	refs     []weighted
	total    uint32
	fallback int // -1: no fallback
	useful   bool
	mirror   *Mirror // nil: no copies are sent
}

type weighted struct {
	choice *Choice
	until  uint32 // the sum of the weights up to this one
}

// condition is a match with its parsed selector.
type condition struct {
	v1alpha1.APIRouteMatch
	selector labels.Selector // nil: no selector
}

// GroupVersionOf returns the group-version of an APIRoute from its name, which is the name of an APIService.
func GroupVersionOf(name string) schema.GroupVersion {
	version, group, _ := strings.Cut(name, ".")
	return schema.GroupVersion{Group: group, Version: version}
}

// Compile returns the Route of an APIRoute. It returns an error for an APIRoute that should not have been stored.
func Compile(o *v1alpha1.APIRoute, namespaces Namespaces) (*Route, error) {
	if err := Validate(o).ToAggregate(); err != nil {
		return nil, err
	}
	r := &Route{
		GroupVersion: GroupVersionOf(o.Name), UID: o.UID, Generation: o.Generation, RolledBack: RolledBack(o), Backends: o.Spec.Backends,
		namespaces:      namespaces,
		customResources: slices.IndexFunc(o.Spec.Backends, func(b v1alpha1.APIRouteBackend) bool { return b.CustomResources != nil }),
	}
	for i := range o.Spec.Rules {
		from := &o.Spec.Rules[i]
		made := rule{name: from.Name, fallback: -1, mirror: r.compileMirror(from.Mirror), useful: shadowedBy(o.Spec.Rules, i) == ""}
		if from.Fallback != "" {
			made.fallback = r.backend(from.Fallback)
		}
		shared := compileSharedReads(from.SharedReads)
		for _, m := range from.Matches {
			c := condition{APIRouteMatch: m}
			if m.NamespaceSelector != nil {
				selector, err := metav1.LabelSelectorAsSelector(m.NamespaceSelector)
				if err != nil {
					return nil, fmt.Errorf("rule %s: namespaceSelector: %w", from.Name, err)
				}
				c.selector = selector
			}
			made.matches = append(made.matches, c)
		}
		gone := rolledBackIn(o, from.Name)
		for i, ref := range from.BackendRefs {
			made.total += weightOf(ref)
			c := r.addChoice(Choice{Rule: made.name, Backend: r.backend(ref.Name), Fallback: made.fallback, ReadOnly: from.ReadOnly, Shared: shared})
			switch {
			case i == 0:
			case slices.Contains(gone, ref.Name):
				c.Backend = made.refs[0].choice.Backend
			case from.Rollback != nil:
				c.ErrorRate = newErrorRate(from.Rollback)
			}
			if made.mirror != nil && made.mirror.Backend != c.Backend {
				c.Mirror = made.mirror
			}
			made.refs = append(made.refs, weighted{c, made.total})
		}
		r.rules = append(r.rules, made)
	}
	r.addChoice(Choice{Fallback: -1})
	return r, nil
}

func (r *Route) addChoice(c Choice) *Choice {
	c.Index = len(r.choices)
	r.choices = append(r.choices, &c)
	return &c
}

// Choices returns all values that Choose may return. Callers must not change them.
func (r *Route) Choices() []*Choice { return r.choices }

func weightOf(ref v1alpha1.BackendRef) uint32 {
	if ref.Weight == nil {
		return 1
	}
	return uint32(*ref.Weight)
}

func (r *Route) backend(name string) int {
	return slices.IndexFunc(r.Backends, func(b v1alpha1.APIRouteBackend) bool { return b.Name == name })
}

// CustomResources returns the index of the backend with the custom resources of the group-version, or -1.
func (r *Route) CustomResources() int { return r.customResources }

// Version returns the version in which a backend serves the group.
func (r *Route) Version(backend int) schema.GroupVersion {
	gv := r.GroupVersion
	if v := r.Backends[backend].Version; v != "" {
		gv.Version = v
	}
	return gv
}

// Choice is the destination of a request.
type Choice struct {
	// Index is the index in Route.Choices.
	Index int
	// Rule is the name of the rule that matches. It is empty if no rule does.
	Rule string
	// Backend and Fallback are indexes of Route.Backends. Fallback is -1 without a fallback.
	Backend, Fallback int
	// ReadOnly is set if writes are refused.
	ReadOnly bool
	// Shared configures how a read may share a response with equal ones. Nil: it may not.
	Shared *SharedReads
	// Mirror configures copies of a read. Nil: no copies.
	Mirror *Mirror
	// ErrorRate counts the results of requests for Backend. Nil: they are not counted.
	ErrorRate *ErrorRate
}

// SharedReads configures how reads share responses.
type SharedReads struct {
	MaxAge, StaleIfError time.Duration
	// AllCallers is set if different callers share responses.
	AllCallers bool
	// Watches is set if one watch of the backend feeds all clients.
	Watches bool
}

func compileSharedReads(from *v1alpha1.SharedReads) *SharedReads {
	if from == nil {
		return nil
	}
	s := &SharedReads{MaxAge: from.MaxAge.Duration, AllCallers: from.Callers == v1alpha1.CallersAll, Watches: from.Watches}
	if from.StaleIfError != nil {
		s.StaleIfError = from.StaleIfError.Duration
	}
	return s
}

// Choose appends the destinations of a request to choices. There are several only for a request that may be for
// objects of several backends. Callers must not change them.
func (r *Route) Choose(q *Request, choices []*Choice) []*Choice {
	for i := range r.rules {
		rule := &r.rules[i]
		does := r.matches(rule, q)
		if does == no {
			continue
		}
		choices = addBackend(choices, rule.pick(q))
		if does == yes {
			return choices
		}
	}
	return addBackend(choices, r.choices[len(r.choices)-1])
}

// addBackend appends a choice, unless choices already contains one with its backend.
func addBackend(choices []*Choice, c *Choice) []*Choice {
	if slices.ContainsFunc(choices, func(have *Choice) bool { return have.Backend == c.Backend }) {
		return choices
	}
	return append(choices, c)
}

// InUse reports which backends may receive requests of clients. A backend that receives only copies is not in use.
func (r *Route) InUse() []bool {
	used := make([]bool, len(r.Backends))
	all := false
	for i := range r.rules {
		rule := &r.rules[i]
		if !rule.useful {
			continue
		}
		before := uint32(0)
		for _, ref := range rule.refs {
			used[ref.choice.Backend] = used[ref.choice.Backend] || ref.until > before
			before = ref.until
		}
		if rule.fallback >= 0 {
			used[rule.fallback] = true
		}
		all = all || len(rule.matches) == 0
	}
	if !all {
		used[0] = true
	}
	return used
}

// Rules returns the rules, in the order in which they are evaluated.
func (r *Route) Rules() []Rule {
	out := make([]Rule, 0, len(r.rules))
	for i := range r.rules {
		rule := Rule{Name: r.rules[i].name, Fallback: r.rules[i].fallback, Useful: r.rules[i].useful}
		before := uint32(0)
		for _, ref := range r.rules[i].refs {
			if ref.until > before && !slices.Contains(rule.Backends, ref.choice.Backend) {
				rule.Backends = append(rule.Backends, ref.choice.Backend)
			}
			before = ref.until
		}
		out = append(out, rule)
	}
	return out
}

// Rule contains the properties of a rule that its status reports.
type Rule struct {
	Name string
	// Backends are the indexes of the backends that receive requests. Fallback is -1 without a fallback.
	Backends []int
	Fallback int
	// Useful is false for a rule that no request reaches.
	Useful bool
}

// pick selects a backend by weight. A user's reads, and writes of one object, go to the same backend on every
// replica.
func (s *rule) pick(q *Request) *Choice {
	ref := &s.refs[0]
	if len(s.refs) > 1 {
		ref = s.pickRef(q)
	}
	if ref.choice.ErrorRate.exceeded() { // exceeded on this replica, and soon in the status
		return s.refs[0].choice
	}
	return ref.choice
}

func (s *rule) pickRef(q *Request) *weighted {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s.name)) // so that two rules do not select the same users
	_, _ = h.Write([]byte{0})
	if q.Reads() || q.Name == "" {
		_, _ = h.Write([]byte(q.User))
	} else {
		_, _ = h.Write([]byte(q.Resource + "/" + q.Namespace + "/" + q.Name))
	}
	at := spread(h.Sum32()) % s.total
	for i := range s.refs {
		if at < s.refs[i].until {
			return &s.refs[i]
		}
	}
	return &s.refs[len(s.refs)-1]
}

// spread makes all bits of a hash depend on all bytes: FNV ends with a multiplication, after which similar names
// differ in few bits.
func spread(h uint32) uint32 {
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

// answer is the result of a match: no, some of the objects, or yes.
type answer int

const (
	no answer = iota
	some
	yes
)

func (r *Route) matches(s *rule, q *Request) answer {
	if len(s.matches) == 0 {
		return yes
	}
	best := no
	for i := range s.matches {
		if best = max(best, r.holds(&s.matches[i], q)); best == yes {
			break
		}
	}
	return best
}

func (r *Route) holds(c *condition, q *Request) answer {
	switch {
	case c.Access == v1alpha1.AccessRead && !q.Reads(), c.Access == v1alpha1.AccessWrite && q.Reads(),
		len(c.Resources) > 0 && !matchesResource(c.Resources, q),
		len(c.Metrics) > 0 && !matchesAny(c.Metrics, q.Metric),
		!hasHeaders(q.Header, c.Headers):
		return no
	}
	result := yes
	switch {
	case len(c.Namespaces) == 0 && c.selector == nil:
	case q.AnyNamespace:
		result = some
	case q.Namespace == "" || len(c.Namespaces) > 0 && !matchesAny(c.Namespaces, q.Namespace) || !r.selects(c.selector, q.Namespace):
		return no
	}
	switch {
	case len(c.Names) == 0:
	case q.AnyName && slices.Contains(c.Names, "*"):
	case q.AnyName:
		result = some
	case !matchesAny(c.Names, q.Name):
		return no
	}
	return result
}

func (r *Route) selects(selector labels.Selector, namespace string) bool {
	if selector == nil {
		return true
	}
	set, ok := r.namespaces(namespace)
	return ok && selector.Matches(set)
}

// matchesResource reports whether a pattern matches the resource. A pattern without a slash also matches its
// subresources.
func matchesResource(patterns []string, q *Request) bool {
	for _, p := range patterns {
		name := q.Resource
		if strings.Contains(p, "/") {
			name = q.fullResource()
		}
		if matchPattern(p, name) {
			return true
		}
	}
	return false
}

func hasHeaders(h http.Header, wanted []v1alpha1.HeaderMatch) bool {
	return !slices.ContainsFunc(wanted, func(w v1alpha1.HeaderMatch) bool {
		return !slices.Contains(h.Values(w.Name), w.Value)
	})
}
