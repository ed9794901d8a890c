package server

import (
	"context"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
	"portico.dev/internal/merge"
	"portico.dev/internal/metrics"
	"portico.dev/internal/mirror"
	"portico.dev/internal/proxy"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
	"portico.dev/internal/routetable"
	"portico.dev/internal/routing"
	"portico.dev/internal/routing/v1alpha1"
	"portico.dev/internal/sharedreads"
	"portico.dev/internal/sharedwatch"
)

// Router sends a request to whoever serves it. It asks one question of one snapshot and nothing falls through:
//
//	no such group-version, routes known       404 Status
//	no such group-version, not yet known      503 Status, Retry-After
//	local                                     the local groups
//	local, etcd lost here only                another replica
//	remote, with an APIRoute                  the proxy, to the backend that its rules select
//	remote, this replica can reach it         the proxy
//	remote, another replica can               that replica
//	remote, none can                          503 Status naming the APIService, its reason and since when
//
// A group-version that only another replica knows is served by that one.
type Router struct {
	// Routes is the snapshot of who serves what.
	Routes func() *routetable.Table
	// LocalGroupVersions are served here even when no APIService says so: apiregistration.k8s.io has none, and one
	// that was deleted must not take the group with it.
	LocalGroupVersions func() sets.Set[schema.GroupVersion]
	// Local serves the local groups.
	Local http.Handler
	// Proxy serves the rest.
	Proxy *proxy.Proxy
	// Unknown, if set, is called when the backend of a route answered 404 to a request for a collection: it may have another
	// set of resources than it is known to have. It must not block.
	Unknown func(route *routetable.Route)
	// InitialEvents says which watches with initial events the servers of APIServices without an annotation about them would
	// ignore. Nil: none.
	InitialEvents proxy.InitialEvents
	// Replicas hands requests to the other replicas. Nil: there are none.
	Replicas Replicas
	// ReachedBy returns the replicas, by name, that reach the backend of a route now. Needed with Replicas.
	ReachedBy func(*routetable.Route) []string
	// WithEtcd returns the replicas, sorted by name, that have etcd while this one has lost it; none while it has not. They get the
	// requests for local groups. Nil: there are none.
	WithEtcd func() []string
	// SharedReads has the responses that reads share where an APIRoute allows it. Nil: each read is sent.
	SharedReads *sharedreads.Cache
	// Mirror sends the copies of reads that an APIRoute mirrors. Nil: none are sent.
	Mirror *mirror.Mirror
	// RollBack is called when the backend of a rule has failed too many requests. It must not block. Nil: only this replica acts on it.
	RollBack func(route *routetable.Route, rule string, backend int, found routing.Errors)
	// SharedWatches feed several clients from one watch of an extension server where an APIRoute allows it. Nil: each watch is sent.
	SharedWatches *sharedwatch.Watches
	// Merger answers lists and watches of objects some of which are custom resources, and InProcess sends a request to a handler. CustomResource
	// reports whether a CustomResourceDefinition defines a resource that is served. All are needed for APIRoutes with custom resources.
	Merger         *merge.Merger
	InProcess      func(http.Handler) http.RoundTripper
	CustomResource func(schema.GroupVersionResource) bool
	// Authorizer decides who may name the backend of a request by BackendHeader. Nil: nobody may.
	Authorizer authorizer.UnconditionalAuthorizer
	// PeerMetrics counts what is handed on. May be nil.
	PeerMetrics *metrics.Peers
	// Discovery serves /api, /apis and /apis/<group>.
	Discovery http.Handler
	// Serves reports whether a resource of a local group-version is known. Needed with CatchUp.
	Serves func(schema.GroupVersionResource) bool
	// CatchUp, if set, is called for a request that is about to be refused because this replica does not know its group-version or
	// resource, or has never reached its backend. It waits until this replica serves what another one may have told the client of,
	// and reports whether it does. It must be bounded. resource is empty for the document of a group-version.
	CatchUp func(ctx context.Context, gv schema.GroupVersion, resource string) bool
	// OpenAPI serves /openapi/.
	OpenAPI http.Handler
	// Settle, if set, is called before the document of one local group-version is served. It waits until the merged documents say the
	// same of it, so that a client that has seen one finds the group-version in the others too. It must be bounded.
	Settle func(ctx context.Context, gv schema.GroupVersion)
	// Warning, if set, returns what clients of backends, discovery and OpenAPI are warned of; empty: nothing.
	Warning func() string
	// Static serves everything outside the API.
	Static http.Handler

	watches watches
}

func (s *Router) ServeHTTP(w http.ResponseWriter, given *http.Request) {
	r := requestFrom(given)
	path := r.URL.Path
	switch {
	case isAPIPath(path):
		gv, ok := groupVersionFor(r)
		if !ok {
			r.Record.ServedBy = "discovery"
			s.warn(w)
			s.Discovery.ServeHTTP(w, given)
			return
		}
		s.serveGroupVersion(w, r, gv)
	case path == "/openapi" || strings.HasPrefix(path, "/openapi/"):
		r.Record.ServedBy = "openapi"
		s.warn(w)
		s.OpenAPI.ServeHTTP(w, given)
	default:
		s.Static.ServeHTTP(w, given)
	}
}

func (s *Router) serveGroupVersion(w http.ResponseWriter, r *filters.Request, gv schema.GroupVersion) {
	table := s.Routes()
	route, ok := table.Lookup(gv)
	if resource, behind := s.mayBeBehind(r, gv, table); behind && s.CatchUp(r.Context(), gv, resource) {
		table = s.Routes()
		route, ok = table.Lookup(gv)
	}
	if s.Settle != nil && (!ok || route.Local || route.Routing != nil && route.Routing.CustomResources() >= 0) && r.Info != nil && !r.Info.IsResourceRequest {
		s.Settle(r.Context(), gv)
	}
	if info := r.Info; ok && r.IsResource() && (info.Verb == "watch" || info.Verb == "list") {
		if (route.Routing == nil || route.Routing.CustomResources() < 0) && isOfElsewhere(w, r) {
			return
		}
		if info.Verb == "watch" && (!route.Local || s.CustomResource != nil && s.CustomResource(gv.WithResource(info.Resource))) {
			began := route
			latest, done := s.watches.begin(r, gv, func() *routetable.Route {
				if now, ok := s.Routes().Lookup(gv); ok {
					return now
				}
				return began
			})
			filters.AtEnd(r.Context(), filters.StepFunc(func(any) { done() }))
			route = latest
		}
	}
	switch {
	case ok && route.Routing != nil && (route.Available() || r.IsResource()): // each backend has a verdict of its own
		s.serveRouted(w, r, route)
	case ok && !route.Local && route.Available():
		r.Record.ServedBy = route.Name
		s.serveRemote(w, r, route, s.destination(route))
	case ok && !route.Local:
		r.Record.ServedBy = route.Name
		if elsewhere, ok := s.handOn(r.Context(), route.Name, route.Replicas); ok {
			s.serveRemote(w, r, route, elsewhere)
			return
		}
		refusal := unavailable(route, r.AuditID)
		r.Record.Failed(refusal.ErrStatus.Message)
		respond.Error(w, r.Request, refusal)
	case ok || s.LocalGroupVersions().Has(gv):
		s.serveLocal(w, r, gv)
	case !table.Synced():
		refusal := apierrors.NewServiceUnavailable("the request has been made before all known HTTP paths have been installed, please try again")
		refusal.ErrStatus.Details = retryAfter(5)
		respond.Error(w, r.Request, refusal)
	default:
		if elsewhere, ok := s.handOn(r.Context(), gv.Version+"."+gv.Group, s.servedElsewhere(gv)); ok {
			s.serveRemote(w, r, &routetable.Route{GroupVersion: gv, Name: elsewhere.APIService}, elsewhere)
			return
		}
		respond.Error(w, r.Request, notFound(r.Request))
	}
}

// serveLocal serves a request for a local group, here or, if this replica alone has lost etcd, at another one.
func (s *Router) serveLocal(w http.ResponseWriter, r *filters.Request, gv schema.GroupVersion) {
	r.Record.ServedBy = "local"
	if s.WithEtcd == nil || !needsEtcd(r, gv) {
		s.Local.ServeHTTP(w, r.Request)
		return
	}
	if elsewhere, ok := s.handToEtcd(r, gv); ok {
		s.serveRemote(w, r, &routetable.Route{GroupVersion: gv, Name: elsewhere.APIService}, elsewhere)
		return
	}
	response := withholdLoss(r, s.WithEtcd)
	s.Local.ServeHTTP(w, r.Request)
	if !response.release() {
		return
	}
	if elsewhere, ok := s.handToEtcd(r, gv); ok {
		s.serveRemote(w, r, &routetable.Route{GroupVersion: gv, Name: elsewhere.APIService}, elsewhere)
		return
	}
	refusal := apierrors.NewServiceUnavailable("etcd does not answer this replica, and the others do not either")
	refusal.ErrStatus.Details = retryAfter(1)
	respond.Error(w, r.Request, refusal)
}

func (s *Router) warn(w http.ResponseWriter) {
	if s.Warning == nil {
		return
	}
	if text := s.Warning(); text != "" {
		if line, err := utilnet.NewWarningHeader(299, "-", text); err == nil { // fails for what no header can hold
			w.Header().Add("Warning", line)
		}
	}
}

// mayBeBehind reports whether a request would be refused for what another replica may know already, and the resource that it is for.
func (s *Router) mayBeBehind(r *filters.Request, gv schema.GroupVersion, table *routetable.Table) (resource string, behind bool) {
	if s.CatchUp == nil {
		return "", false
	}
	if r.IsResource() {
		resource = r.Info.Resource
	}
	route, ok := table.Lookup(gv)
	switch {
	case ok && !route.Local:
		return resource, route.NeverAvailable && !route.Reachable()
	case ok || s.LocalGroupVersions().Has(gv):
		return resource, resource != "" && !s.Serves(gv.WithResource(resource))
	}
	return resource, table.Synced()
}

// destination is the backend of a route, with what the APIService's annotations ask for.
func (s *Router) destination(route *routetable.Route) proxy.Destination {
	target := proxy.Destination{
		Backend: route.Backend, APIService: route.Name,
		RejectSendInitialEvents: route.Options.InitialEvents == routetable.InitialEventsReject,
		MakeInitialEvents:       route.Options.InitialEvents == routetable.InitialEventsMake,
		ConvertTable:            route.Options.ConvertTable, ConvertMetadata: route.Options.ConvertMetadata,
	}
	if route.Options.InitialEvents == routetable.InitialEventsAuto {
		target.InitialEvents = s.InitialEvents
	}
	if s.Replicas != nil {
		target.Fallback = s
	}
	return target
}

// serveRemote hands a request to the proxy.
func (s *Router) serveRemote(w http.ResponseWriter, r *filters.Request, route *routetable.Route, target proxy.Destination) {
	s.warn(w)
	sent := proxy.WithoutNominated(r.Request)
	rec, info := r.Record, r.Info
	rec.Proxied = true
	named := isLongRunning(info, route.Options.LongRunningSubresources)
	// The backend has concurrency slots of its own, which bound the requests that wait for it. With a seat among those of everybody
	// besides, one backend that hangs would keep everybody out.
	rec.HoldSeat(named || request.LongRunning(info))
	defer rec.CancelSeatRelease()
	target.Observer = rec
	target.Continues = !named && isChains(w)
	if named {
		// The filters took it for a short one, since they ran before it was known who serves it.
		target.LongRunning, rec.IsLongRunning = true, true
		if s, ok := requestContextFrom(r.Context()); ok {
			s.response.setLongRunning()
		}
		ctx, cancel := longRunningContext(sent, rec.Draining)
		defer cancel()
		sent = sent.WithContext(ctx)
	}
	s.Proxy.Serve(w, sent, target)
	if s.Unknown != nil && route.Backend != nil && filters.ResponseOf(w).Code == http.StatusNotFound && info != nil && info.IsResourceRequest && info.Name == "" {
		s.Unknown(route)
	}
}

// isChains reports whether a writer is that of the chain. Whoever serves a response through another one has to do something when it is over.
func isChains(w http.ResponseWriter) bool {
	switch w.(type) {
	case *response, hijackable:
		return true
	}
	return false
}

func isLongRunning(info *apirequest.RequestInfo, subresources []string) bool {
	return len(subresources) > 0 && info != nil && info.IsResourceRequest && !request.LongRunning(info) && slices.Contains(subresources, info.Subresource)
}

// longRunningContext is a context in which a long-running request ends with its client or when the server drains,
// except for upgrades, which get the grace, as in the drain filter.
func longRunningContext(r *http.Request, draining context.Context) (context.Context, context.CancelFunc) {
	client, cancel := context.WithCancel(request.ClientContext(r.Context()))
	if draining != nil && r.Header.Get("Upgrade") == "" {
		stop := context.AfterFunc(draining, cancel)
		return request.WithClient(r.Context(), client), func() { stop(); cancel() }
	}
	return request.WithClient(r.Context(), client), cancel
}

// groupVersionFor is groupVersionOf for a request whose path the chain has read already.
func groupVersionFor(r *filters.Request) (schema.GroupVersion, bool) {
	if info := r.Info; r.IsResource() && info.Path == r.URL.Path {
		return schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, true
	}
	return groupVersionOf(r.URL.Path)
}

// groupVersionOf reads the group-version of an API path; discovery of more than one (/api, /apis, /apis/<group>) has none.
func groupVersionOf(path string) (schema.GroupVersion, bool) {
	parts := strings.SplitN(strings.Trim(path, "/"), "/", 4)
	switch {
	case parts[0] == "api" && len(parts) >= 2:
		return schema.GroupVersion{Version: parts[1]}, true
	case parts[0] == "apis" && len(parts) >= 3:
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
	}
	return schema.GroupVersion{}, false
}

// unavailable says which APIService is unavailable, why, and since when, in the answer to the request with that audit id. Scripts look for "currently unable to handle
// the request".
func unavailable(route *routetable.Route, auditID string) *apierrors.StatusError {
	c := route.Condition
	group, kind, name, subject := "apiregistration.k8s.io", "APIService", route.Name, "APIService "+route.Name
	if route.Of != "" {
		group, kind, name = v1alpha1.GroupVersion.Group, "APIRoute", route.Of
		subject = "backend " + strings.TrimPrefix(route.Name, route.Of+"/") + " of APIRoute " + route.Of
	}
	message := "the server is currently unable to handle the request: " + subject + " is unavailable"
	if c.Reason != "" {
		message += " (" + c.Reason
		if !c.LastTransitionTime.IsZero() {
			message += " since " + c.LastTransitionTime.UTC().Format(timeFormat)
		}
		message += ")"
	}
	if c.Message != "" {
		message += ": " + c.Message
	}
	status := apierrors.NewServiceUnavailable(message)
	status.ErrStatus.Details = &metav1.StatusDetails{
		Group:  group,
		Kind:   kind,
		Name:   name,
		Causes: []metav1.StatusCause{{Type: metav1.CauseType(c.Reason), Message: c.Message}},
	}
	respond.AddAuditID(&status.ErrStatus, auditID)
	return status
}

const timeFormat = "2006-01-02T15:04:05Z"

// notFound names no object: it only says that nothing is served at the path.
func notFound(r *http.Request) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, noResource, "", "", 0, false)
}
