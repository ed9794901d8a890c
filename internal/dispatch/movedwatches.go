package dispatch

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/filters"
	"portico.dev/internal/routes/merge"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routetable"
)

// endMovedWatches cancels the context of a watch, with merge.ErrMoved as the cause, when its objects move to another
// backend. The watch would not receive further events.
type endMovedWatches struct {
	next    Handler
	watches *movedWatches
	route   *routetable.Route
	mayMove func(r *filters.Request) bool
	latest  func() (Handler, bool) // the handler of a newer route, if there is one
}

// Serve implements Handler.
func (h *endMovedWatches) Serve(w http.ResponseWriter, r *filters.Request) {
	if !r.Info.IsResourceRequest || r.Info.Verb != "watch" || !h.mayMove(r) {
		h.next.Serve(w, r)
		return
	}
	given := *r
	done := h.watches.begin(r, h.route)
	// Later tables are compared with the registered watches. A table that was published before the registration is not.
	if now, ok := h.latest(); ok {
		done()
		*r = given
		now.Serve(w, r)
		return
	}
	r.AtEnd(filters.StepFunc(func(any) { done() }))
	h.next.Serve(w, r)
}

// movedWatches contains the running watches by group-version. The zero value is empty.
type movedWatches struct {
	mu        sync.Mutex
	byVersion map[schema.GroupVersion]map[*ownedWatch]bool
}

// ownedWatch is a running watch with the backends that stored its objects when it began.
type ownedWatch struct {
	request routing.Request
	owners  string
	cancel  context.CancelCauseFunc
}

// begin registers a watch and replaces the contexts of its request. The caller calls done after the watch.
func (s *movedWatches) begin(r *filters.Request, route *routetable.Route) (done func()) {
	w := &ownedWatch{request: routing.NewRequest(r.Info, "", nil)}
	w.owners = ownersOf(route, &w.request)
	ctx, cancel := context.WithCancelCause(r.Context())
	connected := ctx
	w.cancel = cancel
	if r.Connected != r.Context() {
		var disconnect context.CancelCauseFunc
		connected, disconnect = context.WithCancelCause(r.Connected)
		w.cancel = func(cause error) { cancel(cause); disconnect(cause) }
	}
	s.add(route.GroupVersion, w)
	r.Request, r.Connected = r.WithContext(ctx), connected
	return func() {
		w.cancel(context.Canceled)
		s.remove(route.GroupVersion, w)
	}
}

func (s *movedWatches) add(gv schema.GroupVersion, w *ownedWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byVersion == nil {
		s.byVersion = map[schema.GroupVersion]map[*ownedWatch]bool{}
	}
	if s.byVersion[gv] == nil {
		s.byVersion[gv] = map[*ownedWatch]bool{}
	}
	s.byVersion[gv][w] = true
}

func (s *movedWatches) remove(gv schema.GroupVersion, w *ownedWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byVersion[gv], w)
	if len(s.byVersion[gv]) == 0 {
		delete(s.byVersion, gv)
	}
}

// end cancels the watches whose objects are at other backends according to table. Only APIRoutes with custom
// resources move objects.
func (s *movedWatches) end(table *routetable.Table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for gv, of := range s.byVersion {
		route, ok := table.Lookup(gv)
		if !ok {
			continue
		}
		moves := route.Routing != nil && route.Routing.CustomResources() >= 0
		for w := range of {
			if (moves || strings.Contains(w.owners, customOwner)) && ownersOf(route, &w.request) != w.owners {
				w.cancel(merge.ErrMoved)
			}
		}
	}
}

// ownersOf returns a canonical list of the backends that store the requested objects. For custom resources it
// includes the generation of the APIRoute.
func ownersOf(route *routetable.Route, q *routing.Request) string {
	if route.Local {
		return "local"
	}
	if route.Routing == nil {
		return addressOf(route.Service)
	}
	var room [4]*routing.Choice
	var b strings.Builder
	for _, c := range route.Routing.Choose(q, room[:0]) {
		service := route.Service
		if c.Backend == route.Routing.CustomResources() {
			fmt.Fprintf(&b, "%s%s/%d ", customOwner, route.Routing.UID, route.Routing.Generation)
			continue
		}
		if s := route.Routing.Backends[c.Backend].Service; s != nil {
			service = &apiregistrationv1.ServiceReference{Namespace: s.Namespace, Name: s.Name, Port: s.Port}
		}
		b.WriteString(addressOf(service) + " ")
	}
	return strings.TrimSpace(b.String())
}

const customOwner = "custom:"

func addressOf(s *apiregistrationv1.ServiceReference) string {
	if s == nil {
		return "none"
	}
	port := int32(443)
	if s.Port != nil {
		port = *s.Port
	}
	return fmt.Sprintf("%s/%s:%d", s.Namespace, s.Name, port)
}
