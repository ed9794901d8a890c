package dispatch

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/filters"
	"portico.dev/internal/routetable"
)

// catchUp delays a request that this replica would refuse because its watches lag behind another replica's.
type catchUp struct {
	next   Handler
	wait   func(ctx context.Context, gv schema.GroupVersion, resource string) bool
	gv     schema.GroupVersion
	behind func(r *filters.Request) (resource string, is bool)
	latest func() (Handler, bool) // the handler of a newer route, if there is one
}

// Serve implements Handler.
func (h *catchUp) Serve(w http.ResponseWriter, r *filters.Request) {
	if resource, behind := h.behind(r); behind && h.wait(r.Context(), h.gv, resource) {
		if now, ok := h.latest(); ok {
			now.Serve(w, r)
			return
		}
	}
	h.next.Serve(w, r)
}

// lagCheck returns a function that reports whether this replica may lag behind for a request to route. It returns nil
// if it cannot.
func (h *Handlers) lagCheck(route *routetable.Route) func(*filters.Request) (string, bool) {
	switch {
	case h.config.CatchUp == nil:
		return nil
	case route.Local:
		return h.resourceLagCheck(route.GroupVersion)
	case route.NeverAvailable && !route.Reachable():
		return func(r *filters.Request) (string, bool) { return resourceOf(r), true }
	}
	return nil
}

// resourceLagCheck returns a function that reports whether the local groups lack the requested resource.
func (h *Handlers) resourceLagCheck(gv schema.GroupVersion) func(*filters.Request) (string, bool) {
	return func(r *filters.Request) (string, bool) {
		resource := resourceOf(r)
		return resource, resource != "" && !h.config.Serves(gv.WithResource(resource))
	}
}

// groupVersionLagCheck is resourceLagCheck for a group-version without a route.
func (h *Handlers) groupVersionLagCheck(gv schema.GroupVersion) func(*filters.Request) (string, bool) {
	ofLocal := h.resourceLagCheck(gv)
	return func(r *filters.Request) (string, bool) {
		if h.config.LocalGroupVersions().Has(gv) {
			return ofLocal(r)
		}
		return resourceOf(r), h.config.Routes().Synced()
	}
}

// resourceOf returns the requested resource. It is empty for the document of a group-version.
func resourceOf(r *filters.Request) string {
	if r.Info.IsResourceRequest {
		return r.Info.Resource
	}
	return ""
}
