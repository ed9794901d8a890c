package dispatch

import (
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/internal/filters"
	"portico.dev/internal/routes/routing"
)

// rules selects a handler by the rules of an APIRoute. The request has already been authorized.
type rules struct {
	route   *routing.Route
	choices []Handler   // by routing.Choice.Index
	lists   *mergeLists // serves requests that match several backends
	stored  *collection // serves collections with custom resources; nil: the APIRoute has none
}

// Serve implements Handler.
func (h *rules) Serve(w http.ResponseWriter, r *filters.Request) {
	q := routing.NewRequest(r.Info, r.UserName, r.Header)
	var room [4]*routing.Choice
	choices := h.route.Choose(&q, room[:0])
	if h.stored != nil && isCollection(r) {
		if slices.ContainsFunc(choices, h.stored.isCustom) {
			kept := q // escapes to the heap, unlike q
			h.stored.serve(w, r, &kept, slices.Clone(choices))
			return
		}
		if rejectPosition(w, r) {
			return
		}
	}
	if len(choices) == 1 {
		h.choices[choices[0].Index].Serve(w, r)
		return
	}
	kept := q
	h.lists.serve(w, r, &kept, slices.Clone(choices))
}

// readOnly rejects writes while objects are copied to another backend.
type readOnly struct {
	next           Handler
	apiRoute, rule string
}

// Serve implements Handler.
func (h *readOnly) Serve(w http.ResponseWriter, r *filters.Request) {
	if verb := r.Info.Verb; verb == "get" || verb == "list" || verb == "watch" {
		h.next.Serve(w, r)
		return
	}
	refusal := apierrors.NewServiceUnavailable(fmt.Sprintf("the objects can be read only while they are being copied to another backend (rule %s of APIRoute %s): try again", h.rule, h.apiRoute))
	refusal.ErrStatus.Details = retryAfter(1)
	refuse(w, r, refusal)
}
