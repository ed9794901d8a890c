package dispatch

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/filters"
	"portico.dev/internal/respond"
	"portico.dev/internal/routetable"
)

// unrouted serves requests for a group-version without a route:
//
//	a local group                          the local groups
//	the table is not complete              503, because controllers delete objects after a 404
//	a replica of another release has it    that replica
//	otherwise                              404
type unrouted struct {
	handlers *Handlers
	gv       schema.GroupVersion
}

// Serve implements Handler.
func (h *unrouted) Serve(w http.ResponseWriter, r *filters.Request) {
	c := &h.handlers.config
	switch {
	case c.LocalGroupVersions().Has(h.gv):
		h.handlers.local.Serve(w, r)
		return
	case !c.Routes().Synced():
		refusal := apierrors.NewServiceUnavailable("the request has been made before all known HTTP paths have been installed, please try again")
		refusal.ErrStatus.Details = retryAfter(5)
		respond.Error(w, r.Request, refusal)
		return
	case c.Replicas != nil:
		route := &routetable.Route{GroupVersion: h.gv, Name: h.gv.Version + "." + h.gv.Group}
		if d, ok := h.handlers.forwarder.resolve(r, route.Name, c.Replicas.Serving(h.gv)); ok {
			h.handlers.remotes.forward(w, r, route, d, nil)
			return
		}
	}
	respond.Error(w, r.Request, respond.NotFound(r.Request))
}
