package dispatch

import (
	"net/http"

	"portico.dev/internal/filters"
	"portico.dev/internal/proxy"
)

// endToEnd removes the fields that the Connection header nominates. The proxy does not forward them, so rules and
// keys must not use them.
type endToEnd struct{ next Handler }

// Serve implements Handler.
func (h *endToEnd) Serve(w http.ResponseWriter, r *filters.Request) {
	r.Request = proxy.WithoutNominated(r.Request)
	h.next.Serve(w, r)
}
