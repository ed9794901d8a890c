package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/internal/filters"
	"portico.dev/internal/proxy"
	"portico.dev/internal/respond"
	"portico.dev/internal/routetable"
	"portico.dev/internal/routing"
)

// serveRouted sends a request to the backend that the APIRoute of its group-version selects. The request is authorized already, as it
// was sent.
func (s *Router) serveRouted(w http.ResponseWriter, r *filters.Request, route *routetable.Route) {
	if !r.IsResource() {
		// The document of the group-version is the union of what the backends serve.
		r.Record.ServedBy = "discovery"
		s.Discovery.ServeHTTP(w, r.Request)
		return
	}
	info := r.Info
	r.Request = proxy.WithoutNominated(r.Request)
	q := routing.NewRequest(info, r.UserName(), r.Header)
	var room [4]routing.Choice
	choices := route.Routing.Choose(&q, room[:0])
	chosen, ok := s.chosenBackend(w, r, route)
	if !ok {
		return
	}
	stored := slices.ContainsFunc(choices, func(c routing.Choice) bool { return custom(route, c) })
	switch {
	case chosen >= 0:
		s.serveChoice(w, r, route, routing.Choice{Backend: chosen, Fallback: -1})
		return
	case stored && isCollection(r):
		kept := q // on the heap, as others are not
		s.serveCollection(w, r, route, &kept, slices.Clone(choices))
		return
	case choices[0].ReadOnly && !q.Reads() && len(choices) == 1:
		refuseWrite(w, r, route, choices[0])
		return
	case route.Routing.CustomResources() >= 0 && isCollection(r) && isOfElsewhere(w, r):
		return
	}
	if len(choices) > 1 {
		kept := q
		s.serveMerged(w, r, route, &kept, slices.Clone(choices))
		return
	}
	if choices[0].Mirror != nil && !s.mayMirror(r, &q, route, choices[0].Mirror) {
		choices[0].Mirror = nil
	}
	if shared := choices[0].Shared; shared != nil && shared.Watches && info.Verb == "watch" && s.serveSharedWatch(w, r, route, choices[0]) {
		return
	}
	if shared := choices[0].Shared; shared != nil && s.SharedReads != nil && mayShare(r, route.Options.LongRunningSubresources) {
		s.serveShared(w, r, route, choices[0])
		return
	}
	s.serveChoice(w, r, route, choices[0])
}

// serveChoice sends a request where it goes for a choice.
func (s *Router) serveChoice(w http.ResponseWriter, r *filters.Request, route *routetable.Route, c routing.Choice) {
	if part := route.Parts[c.Backend]; part.Local && part.Available() {
		s.serveCustom(w, r, part)
		return
	}
	part, target, ok := s.partDestination(r.Context(), route, c)
	r.Record.ServedBy = part.Name
	if !ok {
		refusal := unavailable(part, r.AuditID)
		r.Record.Failed(refusal.ErrStatus.Message)
		respond.Error(w, r.Request, refusal)
		s.count(route, c, true)
		return
	}
	if (c.Mirror != nil || c.ErrorRate != nil) && part == route.Parts[c.Backend] && target.Statement.Header == "" {
		s.serveObserved(w, r, route, c, part, target)
		return
	}
	s.serveRemote(w, r, part, target) // who gets it counts it, and sends the copy
}

// serveCustom serves a request for custom resources.
func (s *Router) serveCustom(w http.ResponseWriter, r *filters.Request, part *routetable.Route) {
	if r.Info != nil && s.CatchUp != nil && !s.Serves(part.GroupVersion.WithResource(r.Info.Resource)) {
		s.CatchUp(r.Context(), part.GroupVersion, r.Info.Resource) // another replica may serve it already
	}
	s.serveLocal(w, r, part.GroupVersion)
}

// partDestination is where a request goes for a choice: to the backend, to a replica that reaches it, or to the fallback. False: to
// none, and part is the backend that was chosen.
func (s *Router) partDestination(ctx context.Context, route *routetable.Route, c routing.Choice) (part *routetable.Route, target proxy.Destination, ok bool) {
	chosen := route.Parts[c.Backend]
	if target, ok := s.reach(ctx, route, chosen); ok {
		if c.Fallback >= 0 && c.Fallback != c.Backend && target.Statement.Header == "" {
			target.Fallback = partFallback{s, route, chosen, route.Parts[c.Fallback]}
		}
		return chosen, target, true
	}
	if c.Fallback >= 0 {
		if target, ok := s.reach(ctx, route, route.Parts[c.Fallback]); ok {
			return route.Parts[c.Fallback], target, true
		}
	}
	return chosen, proxy.Destination{}, false
}

// reach is how a backend of an APIRoute is reached, by this replica or through another one. A backend that has not been probed yet is
// tried.
func (s *Router) reach(ctx context.Context, route, part *routetable.Route) (proxy.Destination, bool) {
	if part.Local {
		return proxy.Destination{}, false // not available, or it would be served here
	}
	if part.Available() || part.Untested() {
		return s.directly(route, part), true
	}
	return s.handOn(ctx, route.Name, part.Replicas)
}

// directly is how a backend of an APIRoute is reached by this replica.
func (s *Router) directly(route, part *routetable.Route) proxy.Destination {
	target := s.destination(part)
	if part.GroupVersion != route.GroupVersion {
		target.Alias = &proxy.Alias{Client: route.GroupVersion, Backend: part.GroupVersion}
	}
	return target
}

// partFallback sends a request that got no response of a backend to a replica that reaches it, or to the fallback of its rule.
type partFallback struct {
	router                *Router
	route, part, fallback *routetable.Route
}

// Elsewhere implements proxy.Fallback.
func (f partFallback) Elsewhere(r *http.Request, failed proxy.Destination) (proxy.Destination, bool) {
	var next proxy.Destination
	ok := false
	if f.router.Replicas != nil {
		next, ok = f.router.Elsewhere(r, failed)
	}
	if !ok {
		next, ok = f.router.reach(r.Context(), f.route, f.fallback)
		next.Fallback = nil
	}
	next.LongRunning, next.Observer = failed.LongRunning, failed.Observer
	return next, ok
}

// serveMerged answers a request that is for objects of several backends: a list of computed objects is merged, anything else is refused.
func (s *Router) serveMerged(w http.ResponseWriter, r *filters.Request, route *routetable.Route, q *routing.Request, choices []routing.Choice) {
	r.Record.ServedBy = route.Name
	rec := r.Record
	if q.Verb == "watch" || !q.Reads() || r.Method != http.MethodGet || r.Header.Get("Upgrade") != "" {
		refusal := apierrors.NewBadRequest(fmt.Sprintf("APIRoute %s selects several backends for this %s, by namespace or name, and the request is for any: "+
			"name the namespace or the object", route.Name, q.Verb))
		rec.Failed(refusal.ErrStatus.Message)
		respond.Error(w, r.Request, refusal)
		return
	}
	m := proxy.Merged{Parts: make([]proxy.MergedPart, 0, len(choices)), Observer: rec}
	for _, c := range choices {
		part, target, ok := s.partDestination(r.Context(), route, c)
		p := proxy.MergedPart{Name: route.Routing.Backends[c.Backend].Name, Destination: target}
		switch {
		case !ok:
			p.Missing = part.Condition.Reason
		case target.Statement.Header != "":
			p.Missing = "it is reached from another replica only"
		}
		m.Parts = append(m.Parts, p)
	}
	var room [4]routing.Choice
	m.Keep = func(part int, namespace, name string) bool {
		of := q.Of(namespace, name)
		return route.Routing.Choose(&of, room[:0])[0].Backend == choices[part].Backend
	}
	rec.Proxied = true
	rec.HoldSeat(false)
	defer rec.CancelSeatRelease()
	s.Proxy.ServeMerged(w, r.Request, m)
}
