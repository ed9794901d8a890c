package dispatch

import (
	"net/http"

	"portico.dev/internal/filters"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routetable"
)

// newLocal returns the handler of the local groups.
func (h *Handlers) newLocal() Handler {
	serve := Handler(internalHandler{"local", h.config.Local})
	if h.config.WithEtcd != nil {
		serve = newWithoutEtcd(serve, &h.remotes, &h.forwarder, h.config.WithEtcd)
	}
	return serve
}

// newRemote returns the handler of a backend. Failed requests are repeated at a replica that reaches it.
func (h *Handlers) newRemote(route *routetable.Route) *remote {
	r := newRemote(&h.remotes, route)
	if h.config.Replicas != nil && h.config.ReachedBy != nil {
		r.elsewhere = append(r.elsewhere, &replicaResolver{&h.forwarder, route.Name, func() []string { return h.config.ReachedBy(route) }})
	}
	return r
}

// newPart returns the handler of a backend of an APIRoute. Failed requests are repeated at a replica, or else at
// fallback unless it is nil.
func (h *Handlers) newPart(route, part *routetable.Route, fallback resolver) *remote {
	r := h.newRemote(part)
	r.dest.Alias = aliasOf(route, part)
	if fallback != nil {
		r.elsewhere = append(r.elsewhere, fallback)
	}
	return r
}

// newFallback returns the fallback of a choice, or nil.
func (h *Handlers) newFallback(route *routetable.Route, choice *routing.Choice) resolver {
	other := fallbackOf(route, choice)
	switch {
	case other == nil || other.Local || other == route.Parts[choice.Backend]:
		return nil
	case isReached(other):
		return h.newPlain(route, other)
	}
	return h.replicaResolver(other, route.Name)
}

// fallbackOf returns the route of the fallback of a choice, or nil.
func fallbackOf(route *routetable.Route, choice *routing.Choice) *routetable.Route {
	if choice.Fallback < 0 {
		return nil
	}
	return route.Parts[choice.Fallback]
}

func (h *Handlers) replicaResolver(part *routetable.Route, apiService string) *replicaResolver {
	return &replicaResolver{&h.forwarder, apiService, func() []string { return part.Replicas }}
}

// withReplicas forwards requests to the replicas that reach the backend of route, or else to next.
func (h *Handlers) withReplicas(next Handler, route *routetable.Route, apiService string) Handler {
	if h.config.Replicas == nil || len(route.Replicas) == 0 {
		return next
	}
	return &withReplicas{next, &h.remotes, route, h.replicaResolver(route, apiService)}
}

func (h *Handlers) errorRate(serve Handler, route *routetable.Route, choice *routing.Choice) Handler {
	if choice.ErrorRate == nil {
		return serve
	}
	return &errorRate{serve, h.config.RollBack, route, choice}
}

// newCustomResources returns the handler of a backend that is served from a CustomResourceDefinition.
func (h *Handlers) newCustomResources(part *routetable.Route) Handler {
	if h.config.CatchUp == nil {
		return h.local
	}
	return &catchUp{h.local, h.config.CatchUp, part.GroupVersion, h.resourceLagCheck(part.GroupVersion), func() (Handler, bool) { return nil, false }}
}

// newPlain returns the handler of a backend for requests of the front door itself.
func (h *Handlers) newPlain(route, part *routetable.Route) plain {
	r := newRemote(&h.remotes, part)
	r.dest.Alias = aliasOf(route, part)
	return plain{r}
}

// newCopies returns the handler of a backend for mirrored reads.
func (h *Handlers) newCopies(route, part *routetable.Route) Handler {
	p := h.newPlain(route, part)
	p.dest.Quiet = true
	return p
}

// compileSource returns the handler that serves the part of one choice of a merged collection. It does not forward to
// other replicas, because they would merge the collection again.
func (h *Handlers) compileSource(route *routetable.Route, choice *routing.Choice) Handler {
	part, other := route.Parts[choice.Backend], fallbackOf(route, choice)
	switch {
	case part.Local && part.Available():
		return HandlerFunc(func(w http.ResponseWriter, r *filters.Request) { h.config.Local.ServeHTTP(w, r.Request) })
	case isReached(part):
		return h.newPlain(route, part)
	case !part.Local && (h.config.Replicas == nil || len(part.Replicas) == 0):
		if other != nil && isReached(other) {
			return h.newPlain(route, other)
		}
	}
	return &unavailable{part}
}

// compileListPart returns the part of one choice of a merged list.
func (h *Handlers) compileListPart(route *routetable.Route, choice *routing.Choice) listPart {
	part, other := route.Parts[choice.Backend], fallbackOf(route, choice)
	p := listPart{name: route.Routing.Backends[choice.Backend].Name, missing: part.Condition.Reason}
	switch {
	case isReached(part):
		p.backend = h.newPlain(route, part).remote
		return p
	case !part.Local && len(part.Replicas) > 0:
		p.elsewhere = h.replicaResolver(part, route.Name)
	}
	switch {
	case other == nil:
	case isReached(other):
		p.backend = h.newPlain(route, other).remote
	case p.elsewhere == nil && !other.Local && len(other.Replicas) > 0:
		p.elsewhere = h.replicaResolver(other, route.Name)
	}
	return p
}

// moveCheck returns a function that reports whether the objects of a watch can move to another backend. It returns
// nil if they cannot.
func (h *Handlers) moveCheck(route *routetable.Route) func(*filters.Request) bool {
	switch {
	case !route.Local:
		return func(*filters.Request) bool { return true }
	case h.config.Stored != nil:
		return func(r *filters.Request) bool {
			return h.config.Stored.CustomResource(route.GroupVersion.WithResource(r.Info.Resource))
		}
	}
	return nil
}

// currentOf returns a function that returns the handlers of the group-version of route in the current table.
func (h *Handlers) currentOf(route *routetable.Route) func() (*compiled, bool) {
	return func() (*compiled, bool) { return h.lookup(route.GroupVersion) }
}

// newer returns a function that returns the current handler of the group-version of route, if its route is not route itself.
func (h *Handlers) newer(route *routetable.Route) func() (Handler, bool) {
	return func() (Handler, bool) {
		now, ok := h.lookup(route.GroupVersion)
		return now, ok && now.route != route
	}
}
