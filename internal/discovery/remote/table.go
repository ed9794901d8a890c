package remote

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Backend is an extension server. Two values are the same backend when they are equal, so implementations are pointers.
type Backend interface {
	// Name is namespace/name:port of its Service, for people.
	Name() string
	// Probe returns the transport for our own requests. It picks the endpoint and ignores the host of the request's URL.
	Probe() http.RoundTripper
	// RenewProbes has later requests of ours sent over new connections: those there are keep the memory that large responses took.
	RenewProbes()
}

// Route says who serves one group-version.
type Route struct {
	GroupVersion schema.GroupVersion
	// APIService is the name of the registration, UID tells a recreated one from the previous one, and Revision is any string
	// that changes with its spec.
	APIService string
	UID        types.UID
	Revision   string
	// Local routes have no Backend, nor has a remote one while its Service is missing.
	Local   bool
	Backend Backend
	// Available is this replica's verdict; Reason is the condition's reason why not, and Since when the verdict last changed
	// between available and not; zero when not known.
	Available bool
	// Untested: nothing is known of the backend yet.
	Untested bool
	// ReachedElsewhere: another replica reaches the backend, and requests are handed to it. The documents are those that it has
	// stored.
	ReachedElsewhere bool
	Reason           string
	Since            time.Time
	// CurrentWhenUnavailable keeps the last-known resources of a dead backend Current in discovery.
	CurrentWhenUnavailable bool
	// Parts are the names of the routes of the backends of which this one is the union, nil if it has a backend itself. PartOf is
	// the reverse, empty for none. The group-version of a part may have another version.
	Parts  []string
	PartOf string

	GroupPriority   int32
	VersionPriority int32
}

// Table is all routes. Synced is false until every APIService has been seen once.
type Table struct {
	Routes []Route
	Synced bool
}

// Same reports whether two tables are one: their routes are the same list, which nobody changes.
func (t Table) Same(other Table) bool {
	return t.Synced == other.Synced && len(t.Routes) == len(other.Routes) && (len(t.Routes) == 0 || &t.Routes[0] == &other.Routes[0])
}

// Backends are the distinct backends of the table.
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

// routesByBackend are the indices of the routes of each backend.
func (t Table) routesByBackend() map[Backend][]int {
	of := make(map[Backend][]int)
	for i, r := range t.Routes {
		if !r.Local && r.Backend != nil {
			of[r.Backend] = append(of[r.Backend], i)
		}
	}
	return of
}
