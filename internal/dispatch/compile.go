package dispatch

import (
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routetable"
)

// compile nests the handlers of route, from the outermost to the innermost:
//
//	catchUp          waits while this replica lags behind, then uses the newest route
//	settle           waits until discovery matches the requested document
//	expirePositions  returns 410 for positions in a merged collection
//	endMovedWatches  ends watches of objects that move; uses the newest route if the table has changed
//	resources        separates resources from documents; with an APIRoute only, like all below except the last
//	endToEnd         removes fields that belong to the connection
//	namedBackend     bypasses the rules
//	rules            selects a backend; lists from several backends are merged here
//	readOnly         rejects writes
//	sharedWatch      serves a watch without a request to the backend
//	sharedRead       sends one request for many, which is mirrored and counted once
//	mirrored         mirrors requests that the backend itself answered
//	errorRate        counts responses; a response of the fallback counts as a failure
//	remote           sends to the backend, then to a replica, then to the fallback
func (h *Handlers) compile(route *routetable.Route) *compiled {
	c, out := &h.config, &compiled{route: route}
	custom := route.Routing != nil && route.Routing.CustomResources() >= 0
	serve := h.compileOwner(route)
	if route.Routing != nil {
		document := serve
		if route.Available() {
			document = internalHandler{"discovery", c.Discovery}
		}
		serve = &resources{&endToEnd{h.compileRules(route, out)}, document}
	}
	if mayMove := h.moveCheck(route); mayMove != nil {
		serve = &endMovedWatches{serve, &h.moved, route, mayMove, h.newer(route)}
	}
	if !custom {
		serve = &expirePositions{serve}
	}
	if c.Settle != nil && (route.Local || custom) {
		serve = &settle{serve, c.Settle, route.GroupVersion}
	}
	if behind := h.lagCheck(route); behind != nil {
		serve = &catchUp{serve, c.CatchUp, route.GroupVersion, behind, h.newer(route)}
	}
	out.Handler = serve
	return out
}

// compileOwner returns the handler of a route without its APIRoute.
func (h *Handlers) compileOwner(route *routetable.Route) Handler {
	switch {
	case route.Local:
		return h.local
	case route.Available():
		return h.newRemote(route)
	}
	return h.withReplicas(&unavailable{route}, route, route.Name)
}

// compileRules returns the handler of the rules of an APIRoute.
func (h *Handlers) compileRules(route *routetable.Route, out *compiled) Handler {
	r := &rules{route: route.Routing, lists: &mergeLists{proxy: h.config.Proxy, route: route}}
	for _, choice := range route.Routing.Choices() {
		r.choices = append(r.choices, h.compileChoice(route, choice))
		r.lists.parts = append(r.lists.parts, h.compileListPart(route, choice))
		out.sources = append(out.sources, h.compileSource(route, choice))
	}
	if h.config.Stored != nil && route.Routing.CustomResources() >= 0 {
		r.stored = &collection{h.config.Stored, route, h.currentOf(route)}
	}
	named := &namedBackend{next: r, route: route, authorizer: h.config.Authorizer}
	for i, part := range route.Parts {
		backend, _ := h.compileBackend(route, &routing.Choice{Backend: i, Fallback: -1})
		named.backends = append(named.backends, backend)
		out.copies = append(out.copies, h.newCopies(route, part))
	}
	return named
}

// compileChoice returns the handler of one choice of the rules.
func (h *Handlers) compileChoice(route *routetable.Route, choice *routing.Choice) Handler {
	c, part, shared := &h.config, route.Parts[choice.Backend], choice.Shared
	serve, direct := h.compileBackend(route, choice)
	if direct && choice.Mirror != nil && c.Mirror != nil {
		serve = &mirrored{serve, c.Mirror, route, choice, h.currentOf(route)}
	}
	if shared != nil && c.SharedReads != nil {
		serve = &sharedRead{serve, c.SharedReads, c.Proxy, route, choice}
	}
	if shared != nil && shared.Watches && c.SharedWatches != nil && part.Available() && part.Backend != nil && part.GroupVersion == route.GroupVersion {
		serve = &sharedWatch{serve, c.SharedWatches, route, choice, h.isCurrent(route)}
	}
	if choice.ReadOnly {
		serve = &readOnly{serve, route.Name, choice.Rule}
	}
	return serve
}

// compileBackend returns the handler of the backend of a choice. Replicas that reach the backend come before the
// fallback. direct is true if this replica sends requests to the backend itself.
func (h *Handlers) compileBackend(route *routetable.Route, choice *routing.Choice) (serve Handler, direct bool) {
	part := route.Parts[choice.Backend]
	switch {
	case part.Local && part.Available():
		return h.newCustomResources(part), false
	case isReached(part):
		return h.errorRate(h.newPart(route, part, h.newFallback(route, choice)), route, choice), true
	}
	serve = h.errorRate(&unavailable{part}, route, choice)
	if other := fallbackOf(route, choice); other != nil && isReached(other) {
		serve = h.newPart(route, other, nil)
	} else if other != nil && !other.Local {
		serve = h.withReplicas(serve, other, route.Name)
	}
	if !part.Local {
		serve = h.withReplicas(serve, part, route.Name)
	}
	return serve, false
}
