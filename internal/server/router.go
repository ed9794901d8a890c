package server

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/dispatch"
	"portico.dev/internal/filters"
)

// Router sends a request to whoever serves its path.
type Router struct {
	// Groups are the handlers of the group-versions.
	Groups *dispatch.Handlers
	// Discovery serves /api, /apis and /apis/<group>, OpenAPI what is below /openapi, and Static everything outside the API.
	Discovery, OpenAPI, Static http.Handler
}

// ServeHTTP implements http.Handler.
func (s *Router) ServeHTTP(w http.ResponseWriter, given *http.Request) {
	path := given.URL.Path
	switch {
	case isAPIPath(path):
		r := requestFrom(given)
		if gv, ok := groupVersionFor(r); ok {
			s.Groups.Lookup(gv).Serve(w, r)
			return
		}
		s.serveDocument(w, r, "discovery", s.Discovery)
	case path == "/openapi" || strings.HasPrefix(path, "/openapi/"):
		s.serveDocument(w, requestFrom(given), "openapi", s.OpenAPI)
	default:
		s.Static.ServeHTTP(w, given)
	}
}

// serveDocument serves a document about everything, by the name under which the access log knows it.
func (s *Router) serveDocument(w http.ResponseWriter, r *filters.Request, name string, h http.Handler) {
	r.Record.ServedBy = name
	s.Groups.Warn(w)
	h.ServeHTTP(w, r.Request)
}

// groupVersionFor is groupVersionOf for a request whose path the chain has read already.
func groupVersionFor(r *filters.Request) (schema.GroupVersion, bool) {
	if info := r.Info; info.IsResourceRequest && info.Path == r.URL.Path {
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
