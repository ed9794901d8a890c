package dispatch

import (
	"context"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"portico.dev/internal/filters"
	"portico.dev/internal/proxy"
	"portico.dev/internal/routetable"
)

// InitialEvents reports which extension servers ignore sendInitialEvents.
type InitialEvents interface {
	// Rejects reports whether watches of a resource with sendInitialEvents are rejected. It must not block.
	Rejects(of schema.GroupVersionResource) bool
}

// remotes contains the dependencies of all remote handlers.
type remotes struct {
	proxy         *proxy.Proxy
	initialEvents InitialEvents                 // nil: watches are not rejected
	unknown       func(route *routetable.Route) // nil: not called
	warning       func() string                 // nil: no warnings
}

// resolver resolves requests to a server.
type resolver interface {
	// resolve returns the destination of r. It returns false if the server is not available for r.
	resolve(r *filters.Request) (proxy.Destination, bool)
}

// remote forwards requests to the backend of a route.
type remote struct {
	*remotes
	route     *routetable.Route
	dest      proxy.Destination // the backend; resolve may set InitialEvents
	elsewhere []resolver        // resolvers for failed requests; the first one that resolves is used
}

func newRemote(s *remotes, route *routetable.Route) *remote {
	d := proxy.Destination{
		Backend: route.Backend, APIService: route.Name,
		ConvertTable: route.Options.ConvertTable, ConvertMetadata: route.Options.ConvertMetadata,
	}
	switch route.Options.InitialEvents {
	case routetable.InitialEventsReject:
		d.InitialEvents = proxy.RejectInitialEvents
	case routetable.InitialEventsMake:
		d.InitialEvents = proxy.MakeInitialEvents
	}
	return &remote{remotes: s, route: route, dest: d}
}

// aliasOf returns the alias of a part that serves another version than its route.
func aliasOf(route, part *routetable.Route) proxy.Alias {
	if part.GroupVersion == route.GroupVersion {
		return proxy.Alias{}
	}
	return proxy.Alias{Client: route.GroupVersion, Backend: part.GroupVersion}
}

// isReached reports whether this replica sends requests to the backend of a part. Backends that have not been probed are included.
func isReached(part *routetable.Route) bool {
	return !part.Local && (part.Available() || part.Untested())
}

// Serve implements Handler.
func (h *remote) Serve(w http.ResponseWriter, r *filters.Request) {
	d, _ := h.resolve(r)
	h.forward(w, r, h.route, d, h.elsewhere)
}

// resolve implements resolver.
func (h *remote) resolve(r *filters.Request) (proxy.Destination, bool) {
	d := h.dest
	if h.initialEvents != nil && h.route.Options.InitialEvents == routetable.InitialEventsAuto && proxy.AsksInitialEvents(r) &&
		h.initialEvents.Rejects(schema.GroupVersionResource{Group: r.Info.APIGroup, Version: r.Info.APIVersion, Resource: r.Info.Resource}) {
		d.InitialEvents = proxy.RejectUnprovenInitialEvents
	}
	return d, true
}

// forward forwards a request for route to d.
func (s *remotes) forward(w http.ResponseWriter, r *filters.Request, route *routetable.Route, d proxy.Destination, elsewhere []resolver) {
	s.warn(w)
	rec := r.Record
	rec.ServedBy, rec.Proxied = route.Name, true
	named := isLongRunning(r, route.Options.LongRunningSubresources)
	// The concurrency slots of the backend limit the requests that wait for it. If these requests also kept their
	// seats, one hanging backend would exhaust the seats of all clients.
	rec.HoldSeat(named || r.LongRunning)
	defer rec.CancelSeatRelease()
	d.Continues = !named && r.Client.Is(w)
	if named {
		// The filters classified it as short, because they run before the APIService is known.
		d.LongRunning, rec.IsLongRunning = true, true
		r.Client.SetLongRunning()
		given := r.Connected
		connected, cancel := untilDrain(r)
		defer func() { cancel(); r.Connected = given }()
		r.Connected = connected
	}
	if failed := s.proxy.Attempt(w, r, d); failed != nil {
		s.repeat(w, r, d, failed, elsewhere)
	}
	if s.unknown != nil && route.Backend != nil && filters.ResponseOf(w).Code == http.StatusNotFound && r.Info.IsResourceRequest && r.Info.Name == "" {
		s.unknown(route)
	}
}

// repeat sends a failed request to another server once, if it may be repeated.
func (s *remotes) repeat(w http.ResponseWriter, r *filters.Request, d proxy.Destination, failed *proxy.Failure, elsewhere []resolver) {
	if len(elsewhere) > 0 && failed.MayRepeat() {
		for _, resolver := range elsewhere {
			if next, ok := resolver.resolve(r); ok {
				failed.Repeat()
				r.Record.Elsewhere = true
				next.LongRunning, next.Continues = d.LongRunning, d.Continues
				s.proxy.Serve(w, r, next)
				return
			}
		}
	}
	failed.Answer()
}

// warn adds the header for Config.Warning.
func (s *remotes) warn(w http.ResponseWriter) {
	text := s.warning()
	if text == "" {
		return
	}
	if line, err := utilnet.NewWarningHeader(299, "-", text); err == nil { // the text may be invalid in a header
		w.Header().Add("Warning", line)
	}
}

// isLongRunning reports whether only the options of an APIService declare r long-running.
func isLongRunning(r *filters.Request, subresources []string) bool {
	return len(subresources) > 0 && r.Info.IsResourceRequest && !r.LongRunning && slices.Contains(subresources, r.Info.Subresource)
}

// untilDrain returns a context that ends when the client disconnects or the server drains. Upgraded requests have the
// grace period instead of ending with the drain, as in the drain filter.
func untilDrain(r *filters.Request) (context.Context, context.CancelFunc) {
	connected, cancel := context.WithCancel(r.Connected)
	if draining := r.Record.Draining; draining != nil && r.Header.Get("Upgrade") == "" {
		stop := context.AfterFunc(draining, cancel)
		return connected, func() { stop(); cancel() }
	}
	return connected, cancel
}

// plain forwards requests of the front door itself. They do not take a seat and are not repeated at another server.
type plain struct{ *remote }

// Serve implements Handler.
func (h plain) Serve(w http.ResponseWriter, r *filters.Request) {
	d, _ := h.resolve(r)
	h.proxy.Serve(w, r, d)
}
