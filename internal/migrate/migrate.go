// Package migrate moves the objects of a resource from one backend of an APIRoute to another: from an extension server to custom resources, or
// back.
//
// Namespaces move one by one. The objects of one are made read-only (a rule of the APIRoute), copied, compared, and then the APIRoute says that
// the other backend stores them. Until then nothing has changed for clients but that writes are answered with 503 and Retry-After, and
// whatever fails takes the read-only rule away again. The objects at the backend of before stay, and are not seen any more: they are the way
// back, until they are deleted with DeleteSource.
//
// A copy has a new uid and a new resource version, because the server that stores it gives them. It keeps name, labels, annotations, finalizers,
// owners and managed fields. Owner references among the objects that move are changed to the new uids. Other objects that are owned by one
// of them would be garbage after the move, so that such a namespace is refused.
package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"portico.dev/internal/routing"
	routingclient "portico.dev/internal/routing/client"
	"portico.dev/internal/routing/v1alpha1"
	"portico.dev/internal/run"
	"portico.dev/internal/toolclient"
)

// BackendHeader names the backend that gets a request.
const BackendHeader = "X-Portico-Backend"

// FromUID is the annotation of a copy that has the uid of the object.
const FromUID = "routing.portico.dev/migrated-from-uid"

// MovedTo is the annotation of an object that was copied and is not seen any more. It has the name of the backend that has its copy.
const MovedTo = "routing.portico.dev/moved-to"

// Config is what moves.
type Config struct {
	// Client is that of a user who may do everything with the resource, get and update the APIRoute, migrate it (the verb), and list the
	// metadata of all objects in the namespaces.
	Client *rest.Config
	// Resource is what moves, and To the name of the backend to which it does.
	Resource schema.GroupVersionResource
	To       string
	// Ignore are fields that may differ in a copy: names joined by dots.
	Ignore []string
	// Settle is how long after a change of the APIRoute all replicas are taken to know it.
	Settle time.Duration
	// DryRun only looks whether the namespaces could move.
	DryRun bool
	// DeleteSource deletes the objects at the backend of before, once they have moved.
	DeleteSource bool
	// Progress is told what happens. May be nil.
	Progress func(namespace, what string)
}

// Report is what became of one namespace.
type Report struct {
	// Namespace is empty for resources that are in none.
	Namespace string `json:"namespace,omitempty"`
	From      string `json:"from"`
	To        string `json:"to"`
	// Objects is how many there are, Copied how many were written, and Removed how many older copies were deleted.
	Objects int `json:"objects"`
	Copied  int `json:"copied"`
	Removed int `json:"removed"`
	// Deleted is how many were deleted at the backend of before.
	Deleted int `json:"deleted"`
	// Moved is set once the APIRoute says so.
	Moved bool `json:"moved"`
	// Problems are why it did not move, or what needs attention.
	Problems []string `json:"problems,omitempty"`
}

// Migration moves namespaces.
type Migration struct {
	config   Config
	routes   *routingclient.APIRoutes
	client   *toolclient.Client
	metadata metadata.Interface
	plain    dynamic.Interface
	backends map[string]dynamic.Interface
	resource metav1.APIResource
	status   bool // it has the subresource
}

// New looks whether the resource and the APIRoute are there.
func New(ctx context.Context, c Config) (*Migration, error) {
	if c.Progress == nil {
		c.Progress = func(string, string) {}
	}
	m := &Migration{config: c, backends: map[string]dynamic.Interface{}}
	config := rest.CopyConfig(c.Client)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{} // it waits for each response, and looks at many kinds
	var err error
	if m.routes, err = routingclient.New(config); err != nil {
		return nil, err
	}
	if m.client, err = toolclient.New(config); err != nil {
		return nil, err
	}
	if m.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, err
	}
	if m.plain, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	route, err := m.routes.Get(ctx, m.routeName(), metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get the APIRoute of %s: %w", c.Resource.GroupVersion(), err)
	}
	if !routing.StoresCustomResources(&route.Spec) {
		return nil, fmt.Errorf("APIRoute %s has no backend with customResources: add one", route.Name)
	}
	for _, b := range route.Spec.Backends {
		of := rest.CopyConfig(config)
		of.Wrap(func(next http.RoundTripper) http.RoundTripper { return toBackend{next, b.Name} })
		if m.backends[b.Name], err = dynamic.NewForConfig(of); err != nil {
			return nil, err
		}
	}
	if m.backends[c.To] == nil {
		return nil, fmt.Errorf("APIRoute %s has no backend %q", route.Name, c.To)
	}
	if err := m.findResource(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Migration) routeName() string {
	return m.config.Resource.Version + "." + m.config.Resource.Group
}

// findResource looks the resource up in discovery.
func (m *Migration) findResource(ctx context.Context) error {
	gv := m.config.Resource.GroupVersion()
	resources, err := m.client.Resources(ctx, gv)
	if err != nil {
		return fmt.Errorf("discover %s: %w", gv, err)
	}
	found := false
	for _, r := range resources {
		switch r.Name {
		case m.config.Resource.Resource:
			m.resource, found = r, true
		case m.config.Resource.Resource + "/status":
			m.status = true
		}
	}
	if !found {
		return fmt.Errorf("%s has no resource %q", gv, m.config.Resource.Resource)
	}
	for _, verb := range []string{"get", "list", "create", "update", "delete"} {
		if !slices.Contains(m.resource.Verbs, verb) {
			return fmt.Errorf("%s do not support %s, and cannot be copied", m.config.Resource.Resource, verb)
		}
	}
	return nil
}

// otherVersions are the group-versions, but for that of the APIRoute, in which the resource is served too.
func (m *Migration) otherVersions(ctx context.Context) ([]string, error) {
	all, err := m.client.Discover(ctx)
	if err != nil {
		return nil, fmt.Errorf("discover the groups: %w", err)
	}
	var others []string
	for _, gv := range all {
		if gv.Group != m.config.Resource.Group || gv.Version == m.config.Resource.Version {
			continue
		}
		if gv.Err != nil {
			return nil, fmt.Errorf("discover %s: %w", gv, gv.Err)
		}
		if slices.ContainsFunc(gv.Resources, func(r metav1.APIResource) bool { return r.Name == m.config.Resource.Resource }) {
			others = append(others, gv.String())
		}
	}
	return others, nil
}

// toBackend adds the header to each request.
type toBackend struct {
	next    http.RoundTripper
	backend string
}

// RoundTrip implements http.RoundTripper.
func (t toBackend) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(BackendHeader, t.backend)
	return t.next.RoundTrip(r)
}

// Namespaces are those that Move takes: all that there are, or the empty one for a resource that is in none.
func (m *Migration) Namespaces(ctx context.Context) ([]string, error) {
	if !m.resource.Namespaced {
		return []string{""}, nil
	}
	list, err := m.metadata.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the namespaces: %w", err)
	}
	var names []string
	for _, o := range list.Items {
		names = append(names, o.Name)
	}
	slices.Sort(names)
	return names, nil
}

// Namespaced reports whether the resource is in namespaces.
func (m *Migration) Namespaced() bool { return m.resource.Namespaced }

// ErrRefused is a namespace that does not move; the report says why.
var ErrRefused = errors.New("it did not move")

// Move moves one namespace. The report is complete whatever the error.
func (m *Migration) Move(ctx context.Context, namespace string) (*Report, error) {
	r := &Report{Namespace: namespace, To: m.config.To}
	route, err := m.routes.Get(ctx, m.routeName(), metav1.GetOptions{})
	if err != nil {
		return r, fmt.Errorf("get the APIRoute: %w", err)
	}
	if r.From, err = m.owner(route, namespace); err != nil {
		return r, err
	}
	if r.From == r.To {
		r.Moved = true
		if m.config.DeleteSource {
			return r, m.deleteCopies(ctx, r, route)
		}
		return r, nil
	}
	if err := available(route, r.From, r.To); err != nil {
		return r, err
	}
	if err := m.look(ctx, r); err != nil || m.config.DryRun {
		return r, err
	}
	m.config.Progress(namespace, "making it read-only")
	if err := m.change(ctx, func(spec *v1alpha1.APIRouteSpec) { m.freeze(spec, namespace, r.From) }); err != nil {
		return r, fmt.Errorf("make it read-only: %w", err)
	}
	if err := m.moveFrozen(ctx, r); err != nil {
		// Also when the context has ended: nothing may stay read-only.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if undo := m.change(ctx, func(spec *v1alpha1.APIRouteSpec) { m.unfreeze(spec, namespace) }); undo != nil {
			err = errors.Join(err, fmt.Errorf("the rule %s of APIRoute %s, which makes the objects read-only, could not be deleted: %w; delete it", m.frozenRule(namespace), route.Name, undo))
		}
		return r, err
	}
	return r, nil
}

func (m *Migration) moveFrozen(ctx context.Context, r *Report) error {
	m.config.Progress(r.Namespace, "copying")
	copied, err := m.copyAll(ctx, r)
	if err != nil {
		return err
	}
	m.config.Progress(r.Namespace, "comparing")
	if err := m.compare(ctx, r, copied); err != nil {
		return err
	}
	m.config.Progress(r.Namespace, "switching")
	if err := m.change(ctx, func(spec *v1alpha1.APIRouteSpec) {
		m.unfreeze(spec, r.Namespace)
		m.assign(spec, r.Namespace, r.To)
	}); err != nil {
		return fmt.Errorf("switch: %w", err)
	}
	r.Moved = true
	if err := m.findLate(ctx, r, copied); err != nil {
		r.Problems = append(r.Problems, err.Error())
		return nil
	}
	finish := m.markSource
	if m.config.DeleteSource && len(r.Problems) == 0 {
		m.config.Progress(r.Namespace, "deleting what was copied")
		finish = m.deleteSource
	}
	if err := finish(ctx, r, copied); err != nil {
		r.Problems = append(r.Problems, err.Error())
	}
	return nil
}

// owner is the backend that stores the objects of a namespace.
func (m *Migration) owner(route *v1alpha1.APIRoute, namespace string) (string, error) {
	compiled, err := routing.Compile(route, nil)
	if err != nil {
		return "", fmt.Errorf("the APIRoute has no effect: %w", err)
	}
	q := routing.Request{Verb: "list", Resource: m.config.Resource.Resource, Namespace: namespace}
	return compiled.Backends[compiled.Choose(&q, nil)[0].Backend].Name, nil
}

// available refuses what would begin with a backend that cannot be asked.
func available(route *v1alpha1.APIRoute, names ...string) error {
	for _, b := range route.Status.Backends {
		if c := meta.FindStatusCondition(b.Conditions, v1alpha1.ConditionAvailable); slices.Contains(names, b.Name) && (c == nil || c.Status != metav1.ConditionTrue) {
			why := ""
			if c != nil {
				why = ": " + c.Reason + ": " + c.Message
			}
			return fmt.Errorf("backend %s is not available%s", b.Name, why)
		}
	}
	return nil
}

// change changes the APIRoute, and waits until it is in effect.
func (m *Migration) change(ctx context.Context, how func(*v1alpha1.APIRouteSpec)) error {
	var generation int64
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		route, err := m.routes.Get(ctx, m.routeName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		how(&route.Spec)
		route, err = m.routes.Update(ctx, route, metav1.UpdateOptions{FieldManager: "aggregator-migrate"})
		if err == nil {
			generation = route.Generation
		}
		return err
	}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		route, err := m.routes.Get(ctx, m.routeName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c := meta.FindStatusCondition(route.Status.Conditions, v1alpha1.ConditionAccepted); c != nil && c.ObservedGeneration >= generation {
			if c.Status != metav1.ConditionTrue {
				return fmt.Errorf("the APIRoute is not accepted: %s: %s", c.Reason, c.Message)
			}
			break
		}
		if !run.Pause(ctx, 100*time.Millisecond) {
			return errors.New("the APIRoute is not in effect after 30s: is a front door running?")
		}
	}
	if !run.Pause(ctx, m.config.Settle) {
		return ctx.Err()
	}
	return nil
}

// frozenRule is the name of the rule that makes the objects of a namespace read-only.
func (m *Migration) frozenRule(namespace string) string {
	return shortened(m.fullFrozenRule(namespace))
}

func (m *Migration) fullFrozenRule(namespace string) string {
	name := "migrate-" + m.config.Resource.Resource
	if namespace != "" {
		name += "-" + namespace
	}
	return name
}

// isFrozenRule reports whether a rule makes the objects of a namespace read-only. Releases that cut long names off gave namespaces that
// begin alike the same rule, so that the match counts as well.
func (m *Migration) isFrozenRule(rule *v1alpha1.APIRouteRule, namespace string) bool {
	full := m.fullFrozenRule(namespace)
	if rule.Name != shortened(full) && rule.Name != cutOff(full) || len(rule.Matches) != 1 {
		return false
	}
	want := m.match(namespace)[0]
	return slices.Equal(rule.Matches[0].Resources, want.Resources) && slices.Equal(rule.Matches[0].Namespaces, want.Namespaces)
}

const (
	// maxRuleName is the length of a DNS label, which names of rules are.
	maxRuleName = 63
	// nameDigest is how many hexadecimal digits stand at the end of a shortened name.
	nameDigest = 12
)

// shortened returns a name that a rule may have. A longer one ends with a digest of the whole, so that two never become one.
func shortened(name string) string {
	if len(name) <= maxRuleName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxRuleName-nameDigest-1] + "-" + hex.EncodeToString(sum[:])[:nameDigest]
}

// cutOff returns the name that releases without digests gave a rule.
func cutOff(name string) string { return name[:min(len(name), maxRuleName)] }

func (m *Migration) match(namespaces ...string) []v1alpha1.APIRouteMatch {
	match := v1alpha1.APIRouteMatch{Resources: []string{m.config.Resource.Resource}}
	if m.resource.Namespaced {
		match.Namespaces = namespaces
	}
	return []v1alpha1.APIRouteMatch{match}
}

func (m *Migration) freeze(spec *v1alpha1.APIRouteSpec, namespace, from string) {
	m.unfreeze(spec, namespace)
	spec.Rules = append([]v1alpha1.APIRouteRule{{
		Name: m.frozenRule(namespace), Matches: m.match(namespace), ReadOnly: true, BackendRefs: []v1alpha1.BackendRef{{Name: from}},
	}}, spec.Rules...)
}

func (m *Migration) unfreeze(spec *v1alpha1.APIRouteSpec, namespace string) {
	spec.Rules = slices.DeleteFunc(spec.Rules, func(rule v1alpha1.APIRouteRule) bool { return m.isFrozenRule(&rule, namespace) })
}

// movedRule is the name of the rule for what has moved to a backend.
func (m *Migration) movedRule(backend string) string { return shortened(m.fullMovedRule(backend)) }

func (m *Migration) fullMovedRule(backend string) string {
	return m.config.Resource.Resource + "-in-" + backend
}

// isMovedRuleOf reports whether a rule is the one for what has moved to a backend, under the name of this release or of those that cut
// long names off.
func (m *Migration) isMovedRuleOf(rule *v1alpha1.APIRouteRule, backend string) bool {
	if rule.Name == m.movedRule(backend) {
		return true
	}
	return rule.Name == cutOff(m.fullMovedRule(backend)) && len(rule.BackendRefs) == 1 && rule.BackendRefs[0].Name == backend
}

// namespacesOfMatch is how many patterns one match may have.
const namespacesOfMatch = 64

// assign makes a backend the one that stores the objects of a namespace: by a rule of its own before all others, which is left out where the
// other rules say so already.
func (m *Migration) assign(spec *v1alpha1.APIRouteSpec, namespace, to string) {
	for i := range spec.Rules {
		rule := &spec.Rules[i]
		if !m.isMovedRule(rule, spec) {
			continue
		}
		for j := range rule.Matches {
			rule.Matches[j].Namespaces = slices.DeleteFunc(rule.Matches[j].Namespaces, func(n string) bool { return n == namespace })
		}
		rule.Matches = slices.DeleteFunc(rule.Matches, func(match v1alpha1.APIRouteMatch) bool { return len(match.Namespaces) == 0 })
	}
	spec.Rules = slices.DeleteFunc(spec.Rules, func(rule v1alpha1.APIRouteRule) bool { return m.isMovedRule(&rule, spec) && len(rule.Matches) == 0 })
	route := &v1alpha1.APIRoute{ObjectMeta: metav1.ObjectMeta{Name: m.routeName()}, Spec: *spec}
	if owner, err := m.owner(route, namespace); err == nil && owner == to {
		return
	}
	at := slices.IndexFunc(spec.Rules, func(rule v1alpha1.APIRouteRule) bool { return m.isMovedRuleOf(&rule, to) })
	if at < 0 {
		spec.Rules = append([]v1alpha1.APIRouteRule{{
			Name: m.movedRule(to), Matches: m.match(namespace), BackendRefs: []v1alpha1.BackendRef{{Name: to}},
		}}, spec.Rules...)
		return
	}
	rule := &spec.Rules[at]
	last := &rule.Matches[len(rule.Matches)-1]
	if len(last.Namespaces) >= namespacesOfMatch {
		rule.Matches = append(rule.Matches, m.match(namespace)...)
		return
	}
	last.Namespaces = append(last.Namespaces, namespace)
	slices.Sort(last.Namespaces)
}

func (m *Migration) isMovedRule(rule *v1alpha1.APIRouteRule, spec *v1alpha1.APIRouteSpec) bool {
	return slices.ContainsFunc(spec.Backends, func(b v1alpha1.APIRouteBackend) bool { return m.isMovedRuleOf(rule, b.Name) })
}
