package dispatch

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/filters"
)

// settle delays requests for the document of a group-version until the merged discovery documents match it.
type settle struct {
	next Handler
	wait func(ctx context.Context, gv schema.GroupVersion)
	gv   schema.GroupVersion
}

// Serve implements Handler.
func (h *settle) Serve(w http.ResponseWriter, r *filters.Request) {
	if !r.Info.IsResourceRequest {
		h.wait(r.Context(), h.gv)
	}
	h.next.Serve(w, r)
}
