// Package migrate moves the objects of a resource from one backend of an APIRoute to another: from an extension server to
// custom resources, or back.
//
// Namespaces move one at a time. The objects of a namespace are made read-only (by a rule of the APIRoute), copied and
// compared. Then the APIRoute is changed to the target backend. Until then clients notice only that writes get 503 with
// Retry-After, and every failure removes the read-only rule again. The objects remain at the source backend, invisible to
// clients. They allow a move back until they are deleted with DeleteSource.
//
// A copy has a new uid and a new resource version, because the target server assigns them. It keeps name, labels, annotations,
// finalizers, owners and managed fields. Owner references among the moved objects are changed to the new uids. Other objects
// that are owned by a moved object would be garbage collected after the move, so such a namespace is refused.
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

	routingclient "portico.dev/internal/routes/client"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/run"
	"portico.dev/internal/tools/toolclient"
)

// BackendHeader is the request header that selects the backend.
const BackendHeader = "X-Portico-Backend"

// FromUID is the annotation of a copy with the uid of the source object.
const FromUID = "routing.portico.dev/migrated-from-uid"

// MovedTo is the annotation of a source object that was copied and is no longer visible. Its value is the name of the target
// backend.
const MovedTo = "routing.portico.dev/moved-to"

// Config configures a Migration.
type Config struct {
	// Client is the config of a user who has all permissions for the resource, may get and update the APIRoute, may use the
	// verb migrate on it, and may list the metadata of all objects in the namespaces.
	Client *rest.Config
	// Resource is the resource to move, and To the name of the target backend.
	Resource schema.GroupVersionResource
	To       string
	// Ignore contains dot-separated paths of fields that may differ in a copy.
	Ignore []string
	// Settle is the time after which all replicas are assumed to use a changed APIRoute.
	Settle time.Duration
	// DryRun only checks whether the namespaces can move.
	DryRun bool
	// DeleteSource deletes the objects at the source backend after the move.
	DeleteSource bool
	// Progress is called for each step. May be nil.
	Progress func(namespace, what string)
}

// Report is the result for one namespace.
type Report struct {
	// Namespace is empty for cluster-scoped resources.
	Namespace string `json:"namespace,omitempty"`
	From      string `json:"from"`
	To        string `json:"to"`
	// Objects, Copied and Removed are the numbers of objects, of written copies, and of deleted older copies.
	Objects int `json:"objects"`
	Copied  int `json:"copied"`
	Removed int `json:"removed"`
	// Deleted is the number of objects deleted at the source backend.
	Deleted int `json:"deleted"`
	// Moved is set when the APIRoute selects the target backend.
	Moved bool `json:"moved"`
	// Problems contains the reasons why the namespace did not move, or problems that need attention.
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
	status   bool // the resource has the status subresource
}

// New returns a Migration. It returns an error if the resource or the APIRoute does not exist.
func New(ctx context.Context, c Config) (*Migration, error) {
	if c.Progress == nil {
		c.Progress = func(string, string) {}
	}
	m := &Migration{config: c, backends: map[string]dynamic.Interface{}}
	config := rest.CopyConfig(c.Client)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{} // requests are sequential, and cover many kinds
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

// findResource finds the resource in discovery.
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

// otherVersions returns the other group-versions in which the resource is served.
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

// toBackend adds BackendHeader to each request.
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

// Namespaces returns the arguments for Move: all namespaces, or "" for a cluster-scoped resource.
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

// Namespaced reports whether the resource is namespaced.
func (m *Migration) Namespaced() bool { return m.resource.Namespaced }

// ErrRefused is returned if a namespace does not move. The report contains the reasons.
var ErrRefused = errors.New("it did not move")

// Move moves one namespace. The report is complete even if there is an error.
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
		// Even if the context has ended, because nothing may stay read-only.
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

// owner returns the backend that stores the objects of a namespace.
func (m *Migration) owner(route *v1alpha1.APIRoute, namespace string) (string, error) {
	compiled, err := routing.Compile(route, nil)
	if err != nil {
		return "", fmt.Errorf("the APIRoute has no effect: %w", err)
	}
	q := routing.Request{Verb: "list", Resource: m.config.Resource.Resource, Namespace: namespace}
	return compiled.Backends[compiled.Choose(&q, nil)[0].Backend].Name, nil
}

// available returns an error if one of the named backends is not available.
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

// change updates the APIRoute and waits until it is in effect.
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

// frozenRule returns the name of the rule that makes the objects of a namespace read-only.
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

// isFrozenRule reports whether a rule makes the objects of a namespace read-only. It also compares the match, because releases
// that truncated long names used the same name for namespaces with a common prefix.
func (m *Migration) isFrozenRule(rule *v1alpha1.APIRouteRule, namespace string) bool {
	full := m.fullFrozenRule(namespace)
	if rule.Name != shortened(full) && rule.Name != cutOff(full) || len(rule.Matches) != 1 {
		return false
	}
	want := m.match(namespace)[0]
	return slices.Equal(rule.Matches[0].Resources, want.Resources) && slices.Equal(rule.Matches[0].Namespaces, want.Namespaces)
}

const (
	// maxRuleName is the maximum length of a rule name, a DNS label.
	maxRuleName = 63
	// nameDigest is the number of hexadecimal digits at the end of a shortened name.
	nameDigest = 12
)

// shortened returns a valid rule name. A long name is replaced by a prefix and a digest, so that different names stay
// different.
func shortened(name string) string {
	if len(name) <= maxRuleName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxRuleName-nameDigest-1] + "-" + hex.EncodeToString(sum[:])[:nameDigest]
}

// cutOff returns the rule name of releases without digests.
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

// movedRule returns the name of the rule for namespaces that moved to a backend.
func (m *Migration) movedRule(backend string) string { return shortened(m.fullMovedRule(backend)) }

func (m *Migration) fullMovedRule(backend string) string {
	return m.config.Resource.Resource + "-in-" + backend
}

// isMovedRuleOf reports whether a rule is the one for namespaces that moved to a backend, under its current name or the name of
// releases that truncated long names.
func (m *Migration) isMovedRuleOf(rule *v1alpha1.APIRouteRule, backend string) bool {
	if rule.Name == m.movedRule(backend) {
		return true
	}
	return rule.Name == cutOff(m.fullMovedRule(backend)) && len(rule.BackendRefs) == 1 && rule.BackendRefs[0].Name == backend
}

// namespacesOfMatch is the maximum number of patterns in one match.
const namespacesOfMatch = 64

// assign makes a backend the owner of a namespace: by a separate rule before all others, unless the other rules already select
// the backend.
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
