package dispatch

import (
	"net/http"
	"net/url"
	"strings"

	"portico.dev/internal/filters"
	"portico.dev/internal/respond"
	"portico.dev/internal/routes/merge"
)

// expirePositions returns 410 to clients that resume a list or watch which began while the collection was merged.
type expirePositions struct{ next Handler }

// Serve implements Handler.
func (h *expirePositions) Serve(w http.ResponseWriter, r *filters.Request) {
	if r.Info.IsResourceRequest && (r.Info.Verb == "watch" || r.Info.Verb == "list") && rejectPosition(w, r) {
		return
	}
	h.next.Serve(w, r)
}

// rejectPosition returns 410 and true if r resumes from a position in a merged collection.
func rejectPosition(w http.ResponseWriter, r *filters.Request) bool {
	if raw := r.URL.RawQuery; !strings.Contains(raw, "resourceVersion=1") && !strings.Contains(raw, "=merged.") { // the common case
		return false
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return false
	}
	switch {
	case merge.IsPosition(query.Get("resourceVersion")):
		respond.Error(w, r.Request, merge.Expired("resource version"))
	case merge.IsPosition(query.Get("continue")):
		respond.Error(w, r.Request, merge.Expired("continue parameter"))
	default:
		return false
	}
	return true
}
