package server

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"net/http"
	"net/url"
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
	"portico.dev/internal/routetable"
	"portico.dev/internal/routing"
	"portico.dev/internal/sharedwatch"
)

// serveSharedWatch answers a watch from one that several clients share. It is authorized already, as every one that shares it. False: it is
// not shared, and nothing was written.
func (s *Router) serveSharedWatch(w http.ResponseWriter, r *filters.Request, route *routetable.Route, c routing.Choice) bool {
	part := route.Parts[c.Backend]
	if s.SharedWatches == nil || !part.Available() || part.Backend == nil || part.GroupVersion != route.GroupVersion {
		return false
	}
	q, ok := sharedWatchOf(r)
	if !ok {
		return false
	}
	q.User = r.UserName()
	q.Key, q.Of, q.Backend = sharedWatchKey(&q, route, c), route.Name, part.Backend
	then := route.Routing
	q.Current = func() bool {
		now, ok := s.Routes().Lookup(route.GroupVersion)
		return ok && now.Routing != nil && now.Routing.UID == then.UID && now.Routing.Generation == then.Generation && now.Routing.RolledBack == then.RolledBack
	}
	rec := r.Record
	rec.ReleaseSeat() // it waits for an extension server, or for its events
	q.Begin = func() {
		rec.ServedBy = part.Name
		rec.Proxied = true
		rec.LongRunning()
	}
	watch := s.SharedWatches.Serve(r.Context(), w, &q)
	if watch == nil {
		return false
	}
	filters.AtEnd(r.Context(), filters.StepFunc(func(any) { watch.Leave() }))
	filters.Continue(r.Context(), watch.Run)
	return true
}

// sharedWatchOptions are the parameters that a shared watch may have: the list options of kube-apiserver without those of pages. A watch with
// another parameter, or with one of these twice, is sent to the backend, which decides about it.
var sharedWatchOptions = []string{
	"watch", "labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "allowWatchBookmarks", "timeoutSeconds",
	"timeout", "pretty",
}

// sharedWatchOf is a watch of a collection in plain JSON, without the key and the backend. False: it is another one.
func sharedWatchOf(r *filters.Request) (q sharedwatch.Request, ok bool) {
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
		return q, false // its server says what is wrong with it
	}
	if text := query.Get("timeoutSeconds"); text != "" {
		if _, err := strconv.ParseInt(text, 10, 64); err != nil {
			return q, false // likewise
		}
	}
	q.Lifetime = lifetimeOf(query.Get("timeoutSeconds"))
	q.Version, q.Bookmarks, q.Path = query.Get("resourceVersion"), request.IsTrue(query, "allowWatchBookmarks"), r.URL.Path
	q.Query, err = selection(query.Get("labelSelector"), query.Get("fieldSelector"))
	return q, err == nil
}

// collectionPath is the path of the collection that a request is for.
func collectionPath(info *apirequest.RequestInfo) string {
	path := "/apis/" + info.APIGroup + "/" + info.APIVersion
	if info.Namespace != "" {
		path += "/namespaces/" + info.Namespace
	}
	return path + "/" + info.Resource
}

// selection is the canonical query of two selectors: equal selections have the same query, however a client writes them.
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

// minWatchLifetime is that of watches that do not say theirs: up to twice as long, so that they do not all end at the same time, as with
// kube-apiserver's --min-request-timeout.
const minWatchLifetime = 30 * time.Minute

func lifetimeOf(timeoutSeconds string) time.Duration {
	if n, err := strconv.ParseInt(timeoutSeconds, 10, 32); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	return minWatchLifetime + rand.N(minWatchLifetime)
}

// takesJSON reports whether a client takes plain JSON, and nothing else that a server would rather send it but protobuf. In the events of a
// Table, only the first has columns.
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

// sharedWatchKey is equal for watches that may share one: of the same state of an APIRoute, of one backend, with the same path and selection.
// The extension server sees no header of any of them.
func sharedWatchKey(q *sharedwatch.Request, route *routetable.Route, c routing.Choice) string {
	h := sha256.New()
	add(h, string(route.Routing.UID), route.Routing.Backends[c.Backend].Name, c.Rule, q.Path, q.Query)
	_ = binary.Write(h, binary.BigEndian, route.Routing.Generation)
	return string(h.Sum(nil))
}
