package dispatch

import (
	"net/http"

	"portico.dev/internal/filters"
)

// Handler serves requests. It is safe for concurrent use.
type Handler interface {
	// Serve may replace the http.Request in r. It must not use r after it returns, except in a function passed to r.Continue.
	Serve(w http.ResponseWriter, r *filters.Request)
}

// HandlerFunc is an adapter for functions.
type HandlerFunc func(w http.ResponseWriter, r *filters.Request)

// Serve implements Handler.
func (f HandlerFunc) Serve(w http.ResponseWriter, r *filters.Request) { f(w, r) }

// internalHandler is an http.Handler of this server. by is its name in the access log and in audit events.
type internalHandler struct {
	by      string
	handler http.Handler
}

// Serve implements Handler.
func (h internalHandler) Serve(w http.ResponseWriter, r *filters.Request) {
	r.Record.ServedBy = h.by
	h.handler.ServeHTTP(w, r.Request)
}

// resources separates requests for resources from requests for the document of the group-version.
type resources struct{ resources, document Handler }

// Serve implements Handler.
func (h *resources) Serve(w http.ResponseWriter, r *filters.Request) {
	if r.Info.IsResourceRequest {
		h.resources.Serve(w, r)
		return
	}
	h.document.Serve(w, r)
}

// isCollection reports whether r lists or watches a collection.
func isCollection(r *filters.Request) bool {
	info := r.Info
	return (info.Verb == "list" || info.Verb == "watch") && info.Subresource == "" && r.Method == http.MethodGet && r.Header["Upgrade"] == nil
}
