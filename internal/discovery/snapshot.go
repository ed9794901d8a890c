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

// GroupVersion is one group-version in discovery. Callers must not modify its slices.
type GroupVersion struct {
	schema.GroupVersion
	// APIService is the name of its registration.
	APIService string
	// Local is set if this server serves it.
	Local bool
	// Freshness is Current if clients may rely on Resources being complete. Otherwise Resources are the last-known ones, or
	// empty.
	Freshness apidiscoveryv2.DiscoveryFreshness
	// Reason briefly describes what is wrong with the backend, even if Freshness is Current. It appears only in warnings,
	// not in documents.
	Reason    string
	Resources []apidiscoveryv2.APIResourceDiscovery
	// Parts contains the contributions of several backends, except backends with a different version. It is nil for a
	// single backend.
	Parts []Part

	groupPriority int32
	// united is set if Resources come from several backends.
	united bool
	// unavailable is set if Reason is the reason of the condition, which holds since that time.
	unavailable    bool
	lastTransition time.Time
}

// Part is the contribution of one of the backends of a group-version.
type Part struct {
	// APIService is the name of the backend, "<APIService>/<backend>".
	APIService string
	Freshness  apidiscoveryv2.DiscoveryFreshness
	// Reason briefly describes what is wrong with the backend.
	Reason    string
	Resources []apidiscoveryv2.APIResourceDiscovery
}

// Snapshot contains everything that is served at one moment, with the discovery documents. It is immutable.
type Snapshot struct {
	synced bool
	gvs    []GroupVersion
	byGV   map[schema.GroupVersion]int

	core, groups pair
	group        map[string]func() (*document, error)
	version      map[schema.GroupVersion]func() (*document, error) // of group-versions with several backends
	mapper       func() meta.RESTMapper
	// warnings and legacyWarnings are by path, see Warning. Nil if there are no warnings.
	warnings, legacyWarnings map[string]*remote.Warning

	// replaced is closed when a snapshot with different documents or warnings replaces this one.
	replaced chan struct{}
}

// pair is a document in its two forms.
type pair struct {
	legacy, aggregated *document
}

// GroupVersions returns all group-versions: groups by priority, versions within a group by preference. Callers must not
// modify the slice.
func (s *Snapshot) GroupVersions() []GroupVersion { return s.gvs }

// Lookup returns one group-version.
func (s *Snapshot) Lookup(gv schema.GroupVersion) (GroupVersion, bool) {
	at, ok := s.byGV[gv]
	if !ok {
		return GroupVersion{}, false
	}
	return s.gvs[at], true
}

// Synced is false until every registration has been received once. Until then, a missing group-version may exist.
func (s *Snapshot) Synced() bool { return s.synced }

// RESTMapper maps the kinds and resources of this snapshot, including those of dead backends.
func (s *Snapshot) RESTMapper() meta.RESTMapper { return s.mapper() }

// Warning returns the warning of the document at the path of a group-version, or nil if the document is not stale.
//
// The documents at /api, /apis and /openapi have no warning. Every client reads them, and kubectl --warnings-as-errors
// would fail because of an APIService that its request does not use.
func (s *Snapshot) Warning(path string) *remote.Warning { return s.warnings[path] }

// newWarnings makes the warnings about the group-versions that clients omit, by the path of the group-version and of its
// group.
func newWarnings(gvs []GroupVersion, leftOut func(GroupVersion) bool) map[string]*remote.Warning {
	var stale map[string][]remote.StaleAPIService
	for _, g := range gvs {
		if !leftOut(g) {
			continue
		}
		if stale == nil {
			stale = map[string][]remote.StaleAPIService{}
		}
		why := remote.StaleAPIService{Name: g.APIService, Unavailable: g.unavailable, Reason: g.Reason, Since: g.lastTransition}
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

// newSnapshot makes the documents of gvs. It reuses unchanged documents of before with their encodings; before may be nil.
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
	// A client of legacy discovery requests the resource list of each backend, and gets a 503 from each unavailable
	// backend, even if the last-known list is complete.
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
// reason has changed, which is in no document. The comparison is cheaper than encoding a thousand groups.
func sameInDocuments(a, b GroupVersion) bool {
	if a.united != b.united || a.GroupVersion != b.GroupVersion || a.Freshness != b.Freshness || a.groupPriority != b.groupPriority || len(a.Resources) != len(b.Resources) {
		return false
	}
	// The resources of a backend are never modified in place, so the same slice has the same content. The resources of
	// several backends are merged for each snapshot.
	return len(a.Resources) == 0 || &a.Resources[0] == &b.Resources[0] || (a.Local && b.Local || a.united) && equality.Semantic.DeepEqual(a.Resources, b.Resources)
}

// pair encodes both forms of a document.
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

// ResourceList returns the legacy discovery document of the group-version.
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
