package dispatch

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"portico.dev/internal/metrics"
	"portico.dev/internal/proxy"
	"portico.dev/internal/routes/merge"
	"portico.dev/internal/routes/mirror"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routes/sharedreads"
	"portico.dev/internal/routes/sharedwatch"
	"portico.dev/internal/routetable"
)

// Config contains the dependencies of the handlers. Routes are compiled without a capability if its dependencies are
// nil.
type Config struct {
	// Routes returns the current routing table.
	Routes func() *routetable.Table
	// Proxy sends requests to backends.
	Proxy *proxy.Proxy
	// Discovery serves the merged documents of group-versions with several backends.
	Discovery http.Handler

	// Local serves the local groups. LocalGroupVersions returns the group-versions that do not require an APIService:
	// apiregistration.k8s.io does not have one, and deleting an APIService must not remove a local group.
	Local              http.Handler
	LocalGroupVersions func() sets.Set[schema.GroupVersion]

	// Warning returns the text of a Warning header for responses of backends, or an empty string.
	Warning func() string
	// Unknown is called after a backend returned 404 for a collection, which suggests that the known discovery
	// document is outdated. It must not block.
	Unknown func(route *routetable.Route)
	// InitialEvents is consulted for APIServices without an annotation about initial events.
	InitialEvents InitialEvents

	// Replicas forwards requests to other replicas. ReachedBy returns the names of the replicas that reach the
	// backend of a route. WithEtcd returns the replicas to which requests for local groups are forwarded while this
	// replica has lost etcd.
	Replicas    Replicas
	ReachedBy   func(*routetable.Route) []string
	WithEtcd    func() []string
	PeerMetrics *metrics.Peers

	// CatchUp waits, within a bound, until this replica serves a group-version or resource that another replica may
	// serve already. It returns false if it still does not. resource is empty for the document of a group-version.
	// Serves reports whether a resource of a local group-version is served.
	CatchUp func(ctx context.Context, gv schema.GroupVersion, resource string) bool
	Serves  func(schema.GroupVersionResource) bool
	// Settle waits, within a bound, until the merged discovery documents match the document of one local
	// group-version. Clients that read both then find the same resources.
	Settle func(ctx context.Context, gv schema.GroupVersion)

	// SharedReads, SharedWatches and Mirror implement the options of APIRoute rules with these names.
	SharedReads   *sharedreads.Cache
	SharedWatches *sharedwatch.Watches
	Mirror        *mirror.Mirror
	// RollBack is called when the error rate of a backend exceeds the limit of its rule. It must not block.
	RollBack func(route *routetable.Route, rule string, backend int, found routing.Errors)
	// Stored serves APIRoutes with custom resources.
	Stored *Stored
	// Authorizer authorizes BackendHeader. If it is nil, the header requires the group system:masters.
	Authorizer authorizer.UnconditionalAuthorizer
}

// Stored contains the dependencies of APIRoutes with custom resources.
type Stored struct {
	// Merger merges lists and watches of several backends.
	Merger *merge.Merger
	// InProcess returns a transport that sends requests to a handler.
	InProcess func(http.Handler) http.RoundTripper
	// CustomResource reports whether a resource is served from a CustomResourceDefinition.
	CustomResource func(schema.GroupVersionResource) bool
}

// Handlers dispatches requests by the current routing table. Handlers are compiled after the table changed; an
// unchanged route keeps its handlers.
type Handlers struct {
	config    Config
	remotes   remotes
	forwarder forwarder
	local     Handler
	moved     movedWatches
	current   atomic.Pointer[compiledTable]
	mu        sync.Mutex // serializes compiling
}

// compiledTable contains the handlers of a routing table.
type compiledTable struct {
	table  *routetable.Table
	routes map[schema.GroupVersion]*compiled
}

// compiled contains the handlers of a route.
type compiled struct {
	route *routetable.Route
	Handler
	// sources, by choice, serve the parts of merged collections. copies, by backend, serve mirrored reads. Neither
	// falls back to another server.
	sources, copies []Handler
}

// New returns Handlers. It does not start anything.
func New(c Config) *Handlers {
	if c.LocalGroupVersions == nil {
		c.LocalGroupVersions = func() sets.Set[schema.GroupVersion] { return nil }
	}
	if c.Warning == nil {
		c.Warning = func() string { return "" }
	}
	h := &Handlers{
		config: c, forwarder: forwarder{c.Replicas, c.PeerMetrics},
		remotes: remotes{proxy: c.Proxy, initialEvents: c.InitialEvents, unknown: c.Unknown, warning: c.Warning},
	}
	h.local = h.newLocal()
	return h
}

// Lookup returns the handler of a group-version. The handler of an unknown group-version returns 404 or 503.
func (h *Handlers) Lookup(gv schema.GroupVersion) Handler {
	if c, ok := h.lookup(gv); ok {
		return c
	}
	return h.compileUnrouted(gv)
}

// Proxied returns the handler of a group-version of an extension server. It returns false for other group-versions, and if an APIRoute
// serves objects of this server in it.
func (h *Handlers) Proxied(gv schema.GroupVersion) (Handler, bool) {
	c, ok := h.lookup(gv)
	if !ok || c.route.Local || c.route.Routing != nil && c.route.Routing.CustomResources() >= 0 {
		return nil, false
	}
	return c, true
}

// compileUnrouted returns the handler of a group-version without a route.
func (h *Handlers) compileUnrouted(gv schema.GroupVersion) Handler {
	c := &h.config
	serve := Handler(&unrouted{h, gv})
	if c.Settle != nil {
		serve = &settle{serve, c.Settle, gv}
	}
	if c.CatchUp != nil {
		serve = &catchUp{serve, c.CatchUp, gv, h.groupVersionLagCheck(gv), func() (Handler, bool) {
			now, ok := h.lookup(gv)
			return now, ok
		}}
	}
	return serve
}

// Warn adds the header for Config.Warning.
func (h *Handlers) Warn(w http.ResponseWriter) { h.remotes.warn(w) }

// Run ends watches whose objects move to another backend, until ctx ends. changed returns a channel that is closed
// after the next change of the table.
func (h *Handlers) Run(ctx context.Context, changed func() <-chan struct{}) error {
	for {
		next := changed()
		h.moved.end(h.config.Routes())
		select {
		case <-next:
		case <-ctx.Done():
			return nil
		}
	}
}

// lookup returns the handlers of a group-version in the current table.
func (h *Handlers) lookup(gv schema.GroupVersion) (*compiled, bool) {
	table := h.config.Routes()
	current := h.current.Load()
	if current == nil || current.table != table {
		current = h.recompile()
	}
	c, ok := current.routes[gv]
	return c, ok
}

func (h *Handlers) recompile() *compiledTable {
	h.mu.Lock()
	defer h.mu.Unlock()
	table, before := h.config.Routes(), h.current.Load()
	if before != nil && before.table == table {
		return before
	}
	next := &compiledTable{table, make(map[schema.GroupVersion]*compiled, len(table.Routes()))}
	for _, route := range table.Routes() {
		if before != nil && before.routes[route.GroupVersion] != nil && before.routes[route.GroupVersion].route == route {
			next.routes[route.GroupVersion] = before.routes[route.GroupVersion]
			continue
		}
		next.routes[route.GroupVersion] = h.compile(route)
	}
	h.current.Store(next)
	return next
}
