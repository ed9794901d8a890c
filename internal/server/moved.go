package server

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/filters"
	"portico.dev/internal/merge"
	"portico.dev/internal/request"
	"portico.dev/internal/routetable"
	"portico.dev/internal/routing"
)

// watches are those that go on, by group-version. A watch ends when its objects are stored elsewhere from then on: its client would be told of no
// change any more. The zero value has none.
type watches struct {
	mu sync.Mutex
	of map[schema.GroupVersion]map[*ownedWatch]bool
}

// ownedWatch is a watch of a collection, and who stored its objects when it began.
type ownedWatch struct {
	request routing.Request
	owners  string // empty: not known yet
	cancel  context.CancelCauseFunc
}

// owners names who stores the objects that a request is for. With custom resources among them, that is only so for one state of the APIRoute.
func owners(route *routetable.Route, q *routing.Request) string {
	if route.Local {
		return "local"
	}
	if route.Routing == nil {
		return addressOf(route.Service)
	}
	var room [4]routing.Choice
	var b strings.Builder
	for _, c := range route.Routing.Choose(q, room[:0]) {
		at, service := c.Backend, route.Service
		if custom(route, c) {
			fmt.Fprintf(&b, "%s%s/%d ", customOwner, route.Routing.UID, route.Routing.Generation)
			continue
		}
		if s := route.Routing.Backends[at].Service; s != nil {
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

// begin adds a watch, and gives its request a context that ends when the objects move, with merge.ErrMoved as its cause; done is
// called when the watch is over. lookup returns who serves the group-version. It is asked after the watch was added: a later table will be
// compared with what it returns.
func (s *watches) begin(r *filters.Request, gv schema.GroupVersion, lookup func() *routetable.Route) (route *routetable.Route, done func()) {
	w := &ownedWatch{request: routing.NewRequest(r.Info, "", nil)}
	ctx, cancel := context.WithCancelCause(r.Context())
	w.cancel = cancel
	if client := request.ClientContext(r.Context()); client != r.Context() {
		ofClient, end := context.WithCancelCause(client)
		ctx = request.WithClient(ctx, ofClient)
		w.cancel = func(cause error) { cancel(cause); end(cause) }
	}
	s.add(gv, w)
	route = lookup()
	s.mu.Lock()
	defer s.mu.Unlock()
	w.owners = owners(route, &w.request)
	r.Request = r.WithContext(ctx)
	return route, func() {
		w.cancel(context.Canceled)
		s.remove(gv, w)
	}
}

func (s *watches) add(gv schema.GroupVersion, w *ownedWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[schema.GroupVersion]map[*ownedWatch]bool{}
	}
	if s.of[gv] == nil {
		s.of[gv] = map[*ownedWatch]bool{}
	}
	s.of[gv][w] = true
}

func (s *watches) remove(gv schema.GroupVersion, w *ownedWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of[gv], w)
	if len(s.of[gv]) == 0 {
		delete(s.of, gv)
	}
}

// FollowRoutes ends the watches of objects that move, until ctx ends. changed returns a channel that is closed when Routes has another table.
func (s *Router) FollowRoutes(ctx context.Context, changed func() <-chan struct{}) error {
	for {
		next := changed()
		s.endMovedWatches(s.Routes())
		select {
		case <-next:
		case <-ctx.Done():
			return nil
		}
	}
}

// endMovedWatches ends the watches of objects that a new table says are stored elsewhere now. Only an APIRoute with custom resources among its
// backends moves objects.
func (s *Router) endMovedWatches(table *routetable.Table) {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	for gv, of := range s.watches.of {
		route, ok := table.Lookup(gv)
		if !ok {
			continue
		}
		moves := route.Routing != nil && route.Routing.CustomResources() >= 0
		for w := range of {
			if w.owners != "" && (moves || strings.Contains(w.owners, customOwner)) && owners(route, &w.request) != w.owners {
				w.cancel(merge.ErrMoved)
			}
		}
	}
}
