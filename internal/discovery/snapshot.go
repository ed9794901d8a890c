package discovery

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientdiscovery "k8s.io/client-go/discovery"

	"portico.dev/internal/discovery/remote"
)

// GroupVersion is one group-version in discovery. Callers must not change its slices.
type GroupVersion struct {
	schema.GroupVersion
	// APIService is the name of its registration.
	APIService string
	// Local: this server serves it.
	Local bool
	// Freshness is Current when clients may rely on Resources being complete. Otherwise Resources are the last-known ones, none
	// when there are none.
	Freshness apidiscoveryv2.DiscoveryFreshness
	// Reason says in a few words what is wrong with the backend, also where Freshness is Current. It is in no document, only
	// in warnings.
	Reason    string
	Resources []apidiscoveryv2.APIResourceDiscovery
	// Parts is what each of several backends has of it, those of another version left out; nil for one backend.
	Parts []Part

	groupPriority int32
	// united: Resources are those of several backends.
	united bool
	// unavailable: Reason is the reason of the condition, which holds since then.
	unavailable bool
	since       time.Time
}

// Part is what one of the backends of a group-version serves.
type Part struct {
	// APIService is the name of the backend, "<APIService>/<backend>".
	APIService string
	Freshness  apidiscoveryv2.DiscoveryFreshness
	// Reason says in a few words what is wrong with the backend.
	Reason    string
	Resources []apidiscoveryv2.APIResourceDiscovery
}

// Snapshot is everything that is served at one moment, with the discovery documents. It is immutable.
type Snapshot struct {
	synced bool
	gvs    []GroupVersion
	byGV   map[schema.GroupVersion]int

	core, groups pair
	group        map[string]func() (*document, error)
	version      map[schema.GroupVersion]func() (*document, error) // of those with several backends
	mapper       func() meta.RESTMapper
	// warnings and legacyWarnings are by path, see Warning; nil while there is nothing to warn of.
	warnings, legacyWarnings map[string]*remote.Warning

	// replaced is closed when this snapshot is replaced by one with other documents or other warnings.
	replaced chan struct{}
}

// pair is a document in its two forms.
type pair struct {
	legacy, aggregated *document
}

// GroupVersions returns all of them, groups by priority, versions within a group by preference. Callers must not change
// the slice.
func (s *Snapshot) GroupVersions() []GroupVersion { return s.gvs }

// Lookup returns one group-version.
func (s *Snapshot) Lookup(gv schema.GroupVersion) (GroupVersion, bool) {
	at, ok := s.byGV[gv]
	if !ok {
		return GroupVersion{}, false
	}
	return s.gvs[at], true
}

// Synced is false until every registration has been seen once. Until then, what is absent may exist.
func (s *Snapshot) Synced() bool { return s.synced }

// RESTMapper maps the kinds and resources of this snapshot, including those of dead backends.
func (s *Snapshot) RESTMapper() meta.RESTMapper { return s.mapper() }

// Warning returns the warning of the document at a path, which is that of a group-version. Nil: it is not stale.
//
// The documents at /api, /apis and /openapi have no warning. Every client reads them, and kubectl --warnings-as-errors would fail because
// of an APIService that its request is not about.
func (s *Snapshot) Warning(path string) *remote.Warning { return s.warnings[path] }

// newWarnings makes the warnings about the group-versions that clients leave out, by the path of the group-version and of its group.
func newWarnings(gvs []GroupVersion, leftOut func(GroupVersion) bool) map[string]*remote.Warning {
	var stale map[string][]remote.StaleAPIService
	for _, g := range gvs {
		if !leftOut(g) {
			continue
		}
		if stale == nil {
			stale = map[string][]remote.StaleAPIService{}
		}
		why := remote.StaleAPIService{Name: g.APIService, Unavailable: g.unavailable, Reason: g.Reason, Since: g.since}
		at := pathOf(g.GroupVersion)
		stale[at] = append(stale[at], why)
		if g.Group != "" { // the document above a core version is /api
			at = path.Dir(at)
			stale[at] = append(stale[at], why)
		}
	}
	if stale == nil {
		return nil
	}
	warnings := make(map[string]*remote.Warning, len(stale))
	for at, about := range stale {
		warnings[at] = remote.NewWarning(about)
	}
	return warnings
}

func (s *Snapshot) newMapper() meta.RESTMapper {
	preferred := make([]schema.GroupVersion, 0, len(s.gvs))
	for _, g := range s.gvs {
		preferred = append(preferred, g.GroupVersion)
	}
	mapper := meta.NewDefaultRESTMapper(preferred)
	for _, g := range s.gvs {
		for _, r := range g.Resources {
			if r.ResponseKind == nil || r.ResponseKind.Kind == "" {
				continue // only a parent of subresources
			}
			scope := meta.RESTScopeRoot
			if r.Scope == apidiscoveryv2.ScopeNamespace {
				scope = meta.RESTScopeNamespace
			}
			kind := g.GroupVersion.WithKind(r.ResponseKind.Kind)
			mapper.AddSpecific(kind, g.WithResource(r.Resource), g.WithResource(singular(r)), scope)
		}
	}
	return mapper
}

func singular(r apidiscoveryv2.APIResourceDiscovery) string {
	return cmp.Or(r.SingularResource, r.Resource)
}

// newSnapshot makes the documents of gvs. Unchanged ones are taken from before, with their encodings; before may be nil.
func newSnapshot(e *encoder, before *Snapshot, gvs []GroupVersion, synced bool, address string) (*Snapshot, error) {
	s := &Snapshot{
		synced:   synced,
		gvs:      gvs,
		byGV:     make(map[schema.GroupVersion]int, len(gvs)),
		group:    map[string]func() (*document, error){},
		replaced: make(chan struct{}),
	}
	for i, g := range gvs {
		s.byGV[g.GroupVersion] = i
	}
	s.mapper = sync.OnceValue(s.newMapper)
	s.warnings = newWarnings(gvs, isStale)
	// A client of legacy discovery asks each backend for its own list of resources, and gets a 503 from each that is
	// unavailable, however good the last-known list is.
	s.legacyWarnings = newWarnings(gvs, func(g GroupVersion) bool { return g.unavailable })
	if before != nil && slices.EqualFunc(before.gvs, gvs, sameInDocuments) {
		s.core, s.groups, s.group, s.version = before.core, before.groups, before.group, before.version
		return s, nil
	}
	if before == nil {
		before = &Snapshot{}
	}
	inCore := func(g GroupVersion) bool { return g.Group == "" }
	inGroup := func(g GroupVersion) bool { return g.Group != "" }
	groups := legacyGroups(gvs)
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: groups}

	var err error
	if s.core, err = e.pair(before.core, legacyVersions(gvs, address), aggregatedList(gvs, inCore)); err != nil {
		return nil, err
	}
	if s.groups, err = e.pair(before.groups, list, aggregatedList(gvs, inGroup)); err != nil {
		return nil, err
	}
	s.version = map[schema.GroupVersion]func() (*document, error){}
	for _, g := range gvs {
		if g.united {
			s.version[g.GroupVersion] = sync.OnceValues(func() (*document, error) { return e.document(legacyResources(g), "") })
		}
	}
	for _, group := range groups {
		group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		s.group[group.Name] = sync.OnceValues(func() (*document, error) { return e.document(&group, "") })
	}
	return s, nil
}

// sameInDocuments reports whether two group-versions are the same in every document. Most snapshots are made because a
// reason has changed, which is in no document; the comparison is cheaper than encoding a thousand groups.
func sameInDocuments(a, b GroupVersion) bool {
	if a.united != b.united || a.GroupVersion != b.GroupVersion || a.Freshness != b.Freshness || a.groupPriority != b.groupPriority || len(a.Resources) != len(b.Resources) {
		return false
	}
	// Resources of backends are never changed in place, so that the same slice has the same content.
	// Those of several backends are put together for each snapshot.
	return len(a.Resources) == 0 || &a.Resources[0] == &b.Resources[0] || (a.Local && b.Local || a.united) && equality.Semantic.DeepEqual(a.Resources, b.Resources)
}

// pair makes both forms of a document ready to be served.
func (e *encoder) pair(before pair, legacy, aggregated runtime.Object) (pair, error) {
	var made pair
	var err error
	if made.legacy, err = e.reuse(before.legacy, legacy, ""); err != nil {
		return pair{}, err
	}
	if made.aggregated, err = e.reuse(before.aggregated, aggregated, aggregatedParams); err != nil {
		return pair{}, err
	}
	return made, nil
}

func (e *encoder) reuse(before *document, obj runtime.Object, params string) (*document, error) {
	d, err := e.document(obj, params)
	if err != nil {
		return nil, err
	}
	if before != nil && before.etag == d.etag {
		return before, nil
	}
	return d, d.prepare(before)
}

// sameDocuments reports whether both snapshots have the same documents.
func (s *Snapshot) sameDocuments(other *Snapshot) bool {
	return other != nil && s.synced == other.synced && s.core == other.core && s.groups == other.groups
}

// sameWarnings reports whether both snapshots have the same warnings.
func (s *Snapshot) sameWarnings(other *Snapshot) bool {
	same := func(a, b *remote.Warning) bool { return a.Text() == b.Text() }
	return maps.EqualFunc(s.warnings, other.warnings, same) && maps.EqualFunc(s.legacyWarnings, other.legacyWarnings, same)
}

func isStale(g GroupVersion) bool { return g.Freshness == apidiscoveryv2.DiscoveryFreshnessStale }

func (s *Snapshot) stale() int {
	n := 0
	for _, g := range s.gvs {
		if isStale(g) {
			n++
		}
	}
	return n
}

// ResourceList is the document of the group-version, as servers had it before aggregated discovery.
func (g *GroupVersion) ResourceList() *metav1.APIResourceList {
	version := apidiscoveryv2.APIVersionDiscovery{
		Version: g.Version, Resources: g.Resources, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
	}
	group := apidiscoveryv2.APIGroupDiscovery{
		ObjectMeta: metav1.ObjectMeta{Name: g.Group}, Versions: []apidiscoveryv2.APIVersionDiscovery{version},
	}
	_, lists, _ := clientdiscovery.SplitGroupsAndResources(apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{group}})
	list := lists[g.GroupVersion]
	if list == nil {
		list = &metav1.APIResourceList{GroupVersion: g.GroupVersion.String()}
	}
	list.TypeMeta = metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}
	if list.APIResources == nil {
		list.APIResources = []metav1.APIResource{}
	}
	return list
}
