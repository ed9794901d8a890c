package server

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/dispatch"
	"portico.dev/internal/filters"
)

// Router dispatches a request to the handler of its path.
type Router struct {
	// Groups contains the handlers of group-versions.
	Groups *dispatch.Handlers
	// Discovery serves /api, /apis and /apis/<group>, OpenAPI serves /openapi, and Static serves all paths outside
	// the API.
	Discovery, OpenAPI, Static http.Handler
}

// ServeHTTP implements http.Handler.
func (s *Router) ServeHTTP(w http.ResponseWriter, given *http.Request) {
	path := given.URL.Path
	switch {
	case isAPIPath(path):
		r := RequestFrom(given)
		if gv, ok := GroupVersionOf(r); ok {
			s.Groups.Lookup(gv).Serve(w, r)
			return
		}
		s.serveDocument(w, r, "discovery", s.Discovery)
	case path == "/openapi" || strings.HasPrefix(path, "/openapi/"):
		s.serveDocument(w, RequestFrom(given), "openapi", s.OpenAPI)
	default:
		s.Static.ServeHTTP(w, given)
	}
}

// serveDocument serves a document about all group-versions. name identifies it in the access log.
func (s *Router) serveDocument(w http.ResponseWriter, r *filters.Request, name string, h http.Handler) {
	r.Record.ServedBy = name
	s.Groups.Warn(w)
	h.ServeHTTP(w, r.Request)
}

// GroupVersionOf is groupVersionOf for a request with a path that the chain has already parsed.
func GroupVersionOf(r *filters.Request) (schema.GroupVersion, bool) {
	if info := r.Info; info.IsResourceRequest && info.Path == r.URL.Path {
		return schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, true
	}
	return groupVersionOf(r.URL.Path)
}

// groupVersionOf returns the group-version of an API path. The discovery paths /api, /apis and /apis/<group> have
// none.
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
