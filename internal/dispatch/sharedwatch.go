package dispatch

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	selectionop "k8s.io/apimachinery/pkg/selection"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routes/sharedwatch"
	"portico.dev/internal/routetable"
)

// sharedWatch serves several clients from one watch of the backend. Each of these watches has already been
// authorized.
type sharedWatch struct {
	next    Handler
	watches *sharedwatch.Watches
	route   *routetable.Route
	choice  *routing.Choice
	current func() bool // reports whether the APIRoute is unchanged
}

// Serve implements Handler.
func (h *sharedWatch) Serve(w http.ResponseWriter, r *filters.Request) {
	if r.Info.Verb != "watch" || !h.share(w, r) {
		h.next.Serve(w, r)
	}
}

// share serves a watch from a shared one. It returns false, without a response, if the watch cannot be shared.
func (h *sharedWatch) share(w http.ResponseWriter, r *filters.Request) bool {
	q, ok := sharedWatchOf(r)
	if !ok {
		return false
	}
	part := h.route.Parts[h.choice.Backend]
	q.User = r.UserName
	q.Key, q.Of, q.Backend, q.Current = sharedWatchKey(&q, h.route, h.choice), h.route.Name, part.Backend, h.current
	return ServeSharedWatch(w, r, h.watches, &q, part.Name)
}

// ServeSharedWatch serves a watch from a shared one. It returns false, without a response, if the watch cannot be shared.
func ServeSharedWatch(w http.ResponseWriter, r *filters.Request, watches *sharedwatch.Watches, q *sharedwatch.Request, servedBy string) bool {
	rec := r.Record
	rec.ReleaseSeat() // from here on the request waits for the server
	q.Begin = func() {
		rec.ServedBy, rec.Proxied = servedBy, true
		rec.LongRunning()
	}
	watch := watches.Serve(r.Context(), w, q)
	if watch == nil {
		return false
	}
	r.AtEnd(filters.StepFunc(func(any) { watch.Leave() }))
	r.Continue(watch.Run)
	return true
}

// isCurrent returns a function that reports whether the APIRoute of route is unchanged.
func (h *Handlers) isCurrent(route *routetable.Route) func() bool {
	return func() bool {
		now, ok := h.lookup(route.GroupVersion)
		return ok && sameRouting(now.route, route) && now.route.Routing.RolledBack == route.Routing.RolledBack
	}
}

// sameRouting reports whether both routes have the same generation of the same APIRoute.
func sameRouting(now, then *routetable.Route) bool {
	return now.Routing != nil && now.Routing.UID == then.Routing.UID && now.Routing.Generation == then.Routing.Generation
}

// sharedWatchOptions are the query parameters of shared watches: kube-apiserver's list options without limit and
// continue. Watches with other or repeated parameters go to the backend.
var sharedWatchOptions = []string{
	"watch", "labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "allowWatchBookmarks", "timeoutSeconds",
	"timeout", "pretty",
}

// sharedWatchOf is SharedWatchOf for an APIRoute. A request for a cluster has another response, and is not shared.
func sharedWatchOf(r *filters.Request) (q sharedwatch.Request, ok bool) {
	if filters.ClusterOf(r.User) != "" {
		return q, false
	}
	return SharedWatchOf(r)
}

// SharedWatchOf returns the shared watch for r, without key and backend. It returns false unless r watches a
// collection in plain JSON.
func SharedWatchOf(r *filters.Request) (q sharedwatch.Request, ok bool) {
	info := r.Info
	if info.Verb != "watch" || r.Method != http.MethodGet || info.Subresource != "" || !takesJSON(r.Header.Values("Accept")) ||
		r.Header["Upgrade"] != nil || r.Header["Range"] != nil || r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		return q, false
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || !query.Has("watch") || r.URL.Path != collectionPath(info) {
		return q, false
	}
	for name, values := range query {
		if len(values) != 1 || !slices.Contains(sharedWatchOptions, name) {
			return q, false
		}
	}
	q.InitialEvents = request.IsTrue(query, "sendInitialEvents")
	if match := query.Get("resourceVersionMatch"); q.InitialEvents != (match == string(metav1.ResourceVersionMatchNotOlderThan)) || !q.InitialEvents && match != "" {
		return q, false // invalid; the backend returns the error
	}
	if text := query.Get("timeoutSeconds"); text != "" {
		if _, err := strconv.ParseInt(text, 10, 64); err != nil {
			return q, false // also invalid
		}
	}
	q.Lifetime = lifetimeOf(query.Get("timeoutSeconds"))
	q.Version, q.Bookmarks, q.Path = query.Get("resourceVersion"), request.IsTrue(query, "allowWatchBookmarks"), r.URL.Path
	q.Query, err = selection(query.Get("labelSelector"), query.Get("fieldSelector"))
	return q, err == nil
}

// collectionPath returns the path of the requested collection.
func collectionPath(info *apirequest.RequestInfo) string {
	path := path.Join("/", info.APIPrefix, info.APIGroup, info.APIVersion) // the core group has no name
	if info.Namespace != "" {
		path += "/namespaces/" + info.Namespace
	}
	return path + "/" + info.Resource
}

// selection returns the canonical query of two selectors. Equivalent selectors have the same query.
func selection(labelSelector, fieldSelector string) (query string, err error) {
	l, err := labels.Parse(labelSelector)
	if err != nil {
		return "", err
	}
	f, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		return "", err
	}
	var labelTerms, fieldTerms []string
	requirements, _ := l.Requirements()
	for _, r := range requirements {
		if r.Operator() == selectionop.DoubleEquals {
			if equal, err := labels.NewRequirement(r.Key(), selectionop.Equals, r.ValuesUnsorted()); err == nil {
				r = *equal
			}
		}
		labelTerms = append(labelTerms, r.String())
	}
	for _, r := range f.Requirements() {
		term := fields.OneTermEqualSelector(r.Field, r.Value)
		if r.Operator == selectionop.NotEquals {
			term = fields.OneTermNotEqualSelector(r.Field, r.Value)
		}
		fieldTerms = append(fieldTerms, term.String())
	}
	out := url.Values{}
	for name, terms := range map[string][]string{"labelSelector": labelTerms, "fieldSelector": fieldTerms} {
		if slices.Sort(terms); len(terms) > 0 {
			out.Set(name, strings.Join(slices.Compact(terms), ","))
		}
	}
	return out.Encode(), nil
}

// minWatchLifetime is the minimum lifetime of watches without timeoutSeconds. The maximum is twice as long, so that
// watches end at different times, as with kube-apiserver's --min-request-timeout.
const minWatchLifetime = 30 * time.Minute

func lifetimeOf(timeoutSeconds string) time.Duration {
	if n, err := strconv.ParseInt(timeoutSeconds, 10, 32); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	return minWatchLifetime + rand.N(minWatchLifetime)
}

// takesJSON reports whether a client accepts plain JSON. Tables cannot be shared: only the first event of a watch has the columns.
func takesJSON(accept []string) bool {
	if len(accept) == 0 {
		return true
	}
	takes := false
	for _, c := range respond.ParseAccept(accept...) {
		if c.Params["as"] != "" {
			return false
		}
		takes = takes || c.MediaType == respond.MediaJSON || c.MediaType == "application/*" || c.MediaType == "*/*"
	}
	return takes
}

// sharedWatchKey is equal for watches that may be shared. It contains the APIRoute and its generation, the backend,
// the path and the selection. It does not contain the header, which is not forwarded.
func sharedWatchKey(q *sharedwatch.Request, route *routetable.Route, c *routing.Choice) string {
	h := sha256.New()
	add(h, string(route.Routing.UID), route.Routing.Backends[c.Backend].Name, c.Rule, q.Path, q.Query)
	_ = binary.Write(h, binary.BigEndian, route.Routing.Generation)
	return string(h.Sum(nil))
}
