package dispatch

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"portico.dev/internal/filters"
	"portico.dev/internal/request"
	"portico.dev/internal/routes/merge"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routetable"
)

// collection serves lists and watches of collections that contain custom resources.
type collection struct {
	stored *Stored
	route  *routetable.Route
	latest func() (*compiled, bool) // the handlers in the current table
}

// isCustom reports whether c selects the custom resources.
func (h *collection) isCustom(c *routing.Choice) bool {
	return c.Backend == h.route.Routing.CustomResources()
}

func (h *collection) serve(w http.ResponseWriter, r *filters.Request, q *routing.Request, choices []*routing.Choice) {
	r.Record.ServedBy = h.route.Name
	if len(choices) > 1 && !h.stored.CustomResource(h.route.GroupVersion.WithResource(r.Info.Resource)) {
		// Without a CustomResourceDefinition all objects are at the other backends.
		choices = slices.DeleteFunc(choices, h.isCustom)
	}
	c := merge.Collection{ID: string(h.route.Routing.UID), Epoch: h.route.Routing.Generation, Lifetime: lifetimeOf("")}
	for _, choice := range choices {
		c.Sources = append(c.Sources, merge.Source{
			Name: h.route.Routing.Backends[choice.Backend].Name,
			Owns: func(namespace string) bool {
				var room [2]*routing.Choice
				of := q.ForObject(namespace, "")
				return h.route.Routing.Choose(&of, room[:0])[0].Backend == choice.Backend
			},
			Get: h.source(r, choice),
		})
	}
	watch := r.Info.Verb == "watch"
	r.Record.HoldSeat(watch)
	defer r.Record.CancelSeatRelease()
	h.stored.Merger.Serve(w, r, &c, watch)
}

// source returns a function that sends lists and watches to the backend of one choice, with the identity of r.
func (h *collection) source(r *filters.Request, c *routing.Choice) func(context.Context, bool, []string, url.Values) (*http.Response, error) {
	header := r.Header.Clone()
	for _, name := range []string{"Accept-Encoding", "If-None-Match", "If-Modified-Since", "Range", "If-Range"} {
		header.Del(name)
	}
	path := collectionPath(r.Info)
	return func(ctx context.Context, watch bool, accept []string, query url.Values) (*http.Response, error) {
		now, ok := h.latest()
		if !ok || !sameRouting(now.route, h.route) {
			return nil, merge.Expired("resource version")
		}
		part := *r.Info
		part.Path, part.Verb, part.Name = path, "list", ""
		if watch {
			part.Verb = "watch"
		}
		made := &request.Context{Context: ctx, Info: &part, User: r.User, AuditID: r.AuditID, RemoteAddr: r.RemoteAddr, Received: time.Now()}
		sent := &http.Request{
			Method: http.MethodGet, URL: &url.URL{Path: path, RawQuery: query.Encode()}, Host: r.Host, Header: header.Clone(), Body: http.NoBody,
			RemoteAddr: r.RemoteAddr, TLS: r.TLS,
		}
		sent.Header["Accept"] = accept
		return h.stored.InProcess(http.HandlerFunc(func(w http.ResponseWriter, sent *http.Request) {
			now.sources[c.Index].Serve(w, filters.RequestOf(sent))
		})).RoundTrip(sent.WithContext(made))
	}
}
