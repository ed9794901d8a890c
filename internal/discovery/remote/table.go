package remote

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Backend is an extension server. Two values are the same backend if they are equal, so implementations are pointers.
type Backend interface {
	// Name is namespace/name:port of its Service, for messages.
	Name() string
	// Probe returns the transport for requests of this server. It chooses the endpoint and ignores the host of the
	// request's URL.
	Probe() http.RoundTripper
	// RenewProbes makes later requests of this server use new connections, because the existing ones keep the memory of
	// large responses.
	RenewProbes()
}

// Route describes the backend of one group-version.
type Route struct {
	GroupVersion schema.GroupVersion
	// APIService is the name of the registration. UID distinguishes a recreated APIService from the previous one. Revision
	// is any string that changes with its spec.
	APIService string
	UID        types.UID
	Revision   string
	// Local is set if this server serves the group-version. Backend is then nil, as it is for a remote route with a missing
	// Service.
	Local   bool
	Backend Backend
	// Available is this replica's verdict. Reason is the condition's reason if it is not available, and Since the last
	// change between available and not available, zero if not known.
	Available bool
	// Untested is set if the backend has not been probed yet.
	Untested bool
	// ReachedElsewhere is set if another replica reaches the backend and this replica forwards requests to it. The
	// documents are the ones that the other replica has stored.
	ReachedElsewhere bool
	Reason           string
	Since            time.Time
	// CurrentWhenUnavailable keeps the last-known resources of a dead backend Current in discovery.
	CurrentWhenUnavailable bool
	// Parts are the names of the backend routes whose union this route is, nil if it has a backend. PartOf is the reverse
	// reference, or empty. A part may have a different version of the group.
	Parts  []string
	PartOf string

	GroupPriority   int32
	VersionPriority int32
}

// Table contains all routes. Synced is false until every APIService has been received once.
type Table struct {
	Routes []Route
	Synced bool
}

// Equal reports whether two tables are identical: they share the same immutable list of routes.
func (t Table) Equal(other Table) bool {
	return t.Synced == other.Synced && len(t.Routes) == len(other.Routes) && (len(t.Routes) == 0 || &t.Routes[0] == &other.Routes[0])
}

// Backends returns the distinct backends of the table.
func (t Table) Backends() []Backend {
	seen := map[Backend]bool{}
	var backends []Backend
	for _, r := range t.Routes {
		if !r.Local && r.Backend != nil && !seen[r.Backend] {
			seen[r.Backend] = true
			backends = append(backends, r.Backend)
		}
	}
	return backends
}

// By returns the routes of one backend.
func (t Table) By(b Backend) []Route {
	var routes []Route
	for _, r := range t.Routes {
		if !r.Local && r.Backend == b {
			routes = append(routes, r)
		}
	}
	return routes
}

// routesByBackend returns the indices of the routes of each backend.
func (t Table) routesByBackend() map[Backend][]int {
	of := make(map[Backend][]int)
	for i, r := range t.Routes {
		if !r.Local && r.Backend != nil {
			of[r.Backend] = append(of[r.Backend], i)
		}
	}
	return of
}
