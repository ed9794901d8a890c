package routetable

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/routes/routing"
	"portico.dev/internal/transport"
)

// Route describes the server of one group-version. A Route never changes once it is in a Table.
type Route struct {
	GroupVersion schema.GroupVersion
	// Name is the name of the APIService, even if that object does not exist.
	Name string
	// Local is true if this server serves the group-version itself.
	Local bool
	// Routing, unless it is nil, selects the one of Parts that receives a request. Parts are the routes of its
	// backends, in their order. Backend is then the first one's. Callers must not change the slice.
	Routing *routing.Route
	Parts   []*Route
	// Of is the name of the APIService that this route is a part of. It is empty for other routes.
	Of string
	// Backend serves a remote group-version. It is nil for a local one, and if the Service is missing or the CA
	// bundle does not parse.
	Backend *transport.Backend
	// Condition is this replica's verdict, of type Available. LastTransitionTime is the time of its last change of
	// status.
	Condition apiregistrationv1.APIServiceCondition

	GroupPriority   int32
	VersionPriority int32

	// UID is the APIService's UID. It is empty if the group-version has no APIService.
	UID types.UID
	// ResourceVersion is the APIService's when the route was built. It changes with every write, including status
	// writes, but status writes alone do not create a new Route.
	ResourceVersion string
	// Annotations are the APIService's. Callers must not change the map.
	Annotations map[string]string
	// Options are the APIService's portico.dev annotations. Callers must not change the slices.
	Options Options
	// Service is the Service that a remote APIService refers to; nil for a local one. Callers must not change it.
	Service *apiregistrationv1.ServiceReference

	// Replicas are the replicas that reach the backend and accept requests for it, while this one does not reach it.
	// Callers must not change the slice.
	Replicas []string

	// NeverAvailable is true until this replica has reached the backend that the APIService refers to.
	NeverAvailable bool

	// Extra are the other conditions of the status. Callers must not change the slice.
	Extra []apiregistrationv1.APIServiceCondition
}

// Reachable reports whether requests for the group-version can be served, by this replica or through another one.
func (r *Route) Reachable() bool { return r.Available() || len(r.Replicas) > 0 }

// Available reports whether this replica reaches the backend, or serves the group-version itself.
func (r *Route) Available() bool { return r.Condition.Status == apiregistrationv1.ConditionTrue }

// PartsInUse returns the names of the Parts that may receive requests.
func (r *Route) PartsInUse() []string {
	var names []string
	used := r.Routing.InUse()
	for i, part := range r.Parts {
		if used[i] {
			names = append(names, part.Name)
		}
	}
	return names
}

//reference:conditions Reason of an APIService that has not been probed
const (
	// ReasonNotChecked is set for a backend that has not been probed yet. It is never written to a status; errors
	// contain it.
	ReasonNotChecked = "NotChecked"
)

// Untested reports whether the backend is known but has not been probed yet.
func (r *Route) Untested() bool { return r.Backend != nil && r.NotChecked() }

// NotChecked reports whether the backend is unknown so far, including whether its Service exists.
func (r *Route) NotChecked() bool { return r.Condition.Reason == ReasonNotChecked }

// Table contains the routes of all group-versions at one moment. It is immutable; the zero Table is empty and not
// synced.
type Table struct {
	routes []*Route
	all    []*Route // with their parts
	byGV   map[schema.GroupVersion]*Route
	synced bool
}

// NewTable returns a Table of the routes. It keeps the slice and sorts it.
func NewTable(routes []*Route, synced bool) *Table {
	t := &Table{routes: routes, byGV: make(map[schema.GroupVersion]*Route, len(routes)), synced: synced}
	for _, r := range routes {
		t.byGV[r.GroupVersion] = r
	}
	sortForDiscovery(t.routes)
	t.all = t.routes
	for _, r := range t.routes {
		if len(r.Parts) > 0 {
			t.all = append(t.all[:len(t.all):len(t.all)], r.Parts...)
		}
	}
	return t
}

// Lookup returns the route of a group-version.
func (t *Table) Lookup(gv schema.GroupVersion) (*Route, bool) {
	r, ok := t.byGV[gv]
	return r, ok
}

// OfAPIService returns the route of the APIService with a name.
func (t *Table) OfAPIService(name string) (*Route, bool) {
	version, group, _ := strings.Cut(name, ".")
	r, ok := t.Lookup(schema.GroupVersion{Group: group, Version: version})
	return r, ok && r.Name == name
}

// Named returns the route of an APIService, or of a backend of an APIRoute ("<APIService>/<backend>").
func (t *Table) Named(name string) (*Route, bool) {
	for _, r := range t.all {
		if r.Name == name {
			return r, true
		}
	}
	return nil, false
}

// Routes returns every route in the order of legacy discovery: groups by the priority of their best APIService, then
// by that object's name; within a group by version priority, then newer and more stable first. Callers must not change
// the slice.
func (t *Table) Routes() []*Route { return t.routes }

// All returns every route, followed by the routes of their parts. Callers must not change the slice.
func (t *Table) All() []*Route { return t.all }

// Synced reports whether every APIService that existed at start is in the table. Until it is, the response for an
// unknown group-version must be 503, not 404: garbage collectors and namespace controllers delete objects after a
// 404.
func (t *Table) Synced() bool { return t.synced }

// sortForDiscovery orders routes as kube-aggregator orders APIServices, with names that begin with the version: a
// group has the place of its first object, so the result differs from sorting groups by name.
func sortForDiscovery(routes []*Route) {
	slices.SortFunc(routes, func(a, b *Route) int {
		return cmp.Or(cmp.Compare(b.GroupPriority, a.GroupPriority), cmp.Compare(a.Name, b.Name))
	})
	place := make(map[string]int, len(routes))
	for i, r := range routes {
		if _, seen := place[r.GroupVersion.Group]; !seen {
			place[r.GroupVersion.Group] = i
		}
	}
	slices.SortStableFunc(routes, func(a, b *Route) int {
		return cmp.Or(
			cmp.Compare(place[a.GroupVersion.Group], place[b.GroupVersion.Group]),
			cmp.Compare(b.VersionPriority, a.VersionPriority),
			version.CompareKubeAwareVersionStrings(b.GroupVersion.Version, a.GroupVersion.Version),
		)
	})
}
