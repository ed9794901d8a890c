package dispatch

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/internal/filters"
	"portico.dev/internal/proxy"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routetable"
)

// mergeLists serves requests that match objects of several backends. It merges lists of computed objects and rejects
// other requests.
type mergeLists struct {
	proxy *proxy.Proxy
	route *routetable.Route
	parts []listPart // by routing.Choice.Index
}

// listPart locates the list of one choice.
type listPart struct {
	name string
	// backend is the backend of the choice, or its fallback, if this replica reaches it. elsewhere are the replicas that
	// reach a backend which takes precedence over here.
	backend   *remote
	elsewhere resolver
	missing   string // the reason if neither is available
}

func (h *mergeLists) serve(w http.ResponseWriter, r *filters.Request, q *routing.Request, choices []*routing.Choice) {
	r.Record.ServedBy = h.route.Name
	if q.Verb == "watch" || !q.Reads() || r.Method != http.MethodGet || r.Header.Get("Upgrade") != "" {
		refuse(w, r, apierrors.NewBadRequest(fmt.Sprintf("APIRoute %s selects several backends for this %s, by namespace or name, and the request is for any: "+
			"name the namespace or the object", h.route.Name, q.Verb)))
		return
	}
	m := proxy.Merged{Parts: make([]proxy.MergedPart, 0, len(choices))}
	for _, c := range choices {
		m.Parts = append(m.Parts, h.parts[c.Index].resolve(r))
	}
	var room [4]*routing.Choice
	m.Keep = func(part int, namespace, name string) bool {
		of := q.ForObject(namespace, name)
		return h.route.Routing.Choose(&of, room[:0])[0].Backend == choices[part].Backend
	}
	rec := r.Record
	rec.Proxied = true
	rec.HoldSeat(false)
	defer rec.CancelSeatRelease()
	h.proxy.ServeMerged(w, r, m)
}

func (p *listPart) resolve(r *filters.Request) proxy.MergedPart {
	out := proxy.MergedPart{Name: p.name}
	if p.elsewhere != nil {
		if _, ok := p.elsewhere.resolve(r); ok {
			out.Missing = "it is reached from another replica only"
			return out
		}
	}
	if p.backend == nil {
		out.Missing = p.missing
		return out
	}
	out.Destination, _ = p.backend.resolve(r)
	return out
}
