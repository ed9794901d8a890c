package server

import (
	"encoding/binary"
	"hash"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/filters"
	"portico.dev/internal/proxy"
	"portico.dev/internal/request"
	"portico.dev/internal/routetable"
	"portico.dev/internal/routing"
	"portico.dev/internal/sharedreads"
)

// serveShared answers a read that may share a response with equal ones. It is authorized already, as every one that shares it.
func (s *Router) serveShared(w http.ResponseWriter, r *filters.Request, route *routetable.Route, c routing.Choice) {
	r.Record.ServedBy = route.Parts[c.Backend].Name
	key := sharedKeys.Get().(*sharedKey)
	key.set(r, route, &c, s.Proxy)
	served := s.SharedReads.ServeKept(w, key.text, route.Name, c.Shared.MaxAge)
	text := ""
	if !served {
		text = string(key.text)
	}
	key.free()
	if !served {
		s.sendShared(w, r, route, c, text)
	}
}

// sendShared answers a read that finds no response.
func (s *Router) sendShared(w http.ResponseWriter, r *filters.Request, route *routetable.Route, c routing.Choice, key string) {
	s.SharedReads.Serve(w, r.Request, sharedreads.Request{
		Key: key, User: r.UserName(), Of: route.Name,
		Policy:  sharedreads.Policy{MaxAge: c.Shared.MaxAge, StaleIfError: c.Shared.StaleIfError},
		Unkeyed: isUnkeyed,
		Waiting: r.Record.ReleaseSeat, // what it waits for has a concurrency slot of the backend
		Send:    func(w http.ResponseWriter) { s.serveChoice(w, r, route, c) },
	})
}

// mayShare reports whether a read is one that can share a response. One that is about a moment, or about what its client has already, is
// sent.
func mayShare(r *filters.Request, longRunning []string) bool {
	if _, plain := plainRead(r, longRunning); !plain || r.Header["Pragma"] != nil {
		return false
	}
	if deletesByWhatItReads[r.UserName()] {
		return false
	}
	for _, v := range r.Header["Cache-Control"] {
		if strings.Contains(strings.ToLower(v), "no-") { // no-cache and no-store
			return false
		}
	}
	return true
}

// deletesByWhatItReads are the users of controllers that delete, or let go, what a response from before does not show: a namespace whose
// objects are not in it yet, objects whose owner has another uid in it. kube-controller-manager has one user for all of its controllers unless
// it runs with --use-service-account-credentials.
var deletesByWhatItReads = map[string]bool{
	user.APIServerUser: true, user.KubeControllerManager: true,
	serviceaccount.MakeUsername(metav1.NamespaceSystem, "namespace-controller"):      true,
	serviceaccount.MakeUsername(metav1.NamespaceSystem, "generic-garbage-collector"): true,
	serviceaccount.MakeUsername(metav1.NamespaceSystem, "resourcequota-controller"):  true,
}

// plainRead reports whether a request is a get or list whose response depends on nothing that its client has from an earlier one, and returns
// its query.
func plainRead(r *filters.Request, longRunning []string) (query url.Values, plain bool) {
	info := r.Info
	if r.Method != http.MethodGet || info.Verb != "get" && info.Verb != "list" || request.LongRunning(info) || isLongRunning(info, longRunning) ||
		r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		return nil, false
	}
	for _, name := range [...]string{"Upgrade", "Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range"} {
		if r.Header[name] != nil {
			return nil, false
		}
	}
	if r.URL.RawQuery == "" {
		return nil, true
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, false
	}
	version := query.Get("resourceVersion")
	return query, version == "" || version == "0"
}

// isUnkeyed reports whether a header field is not part of the key although backends receive it. These fields authenticate or describe the
// client, or describe one request. Every other field that is forwarded is part of the key, because the response may depend on it. A response
// whose Vary header names an unkeyed field is not shared (RFC 9111, section 4.1).
func isUnkeyed(name string) bool {
	switch name {
	case "Authorization", "User-Agent", "Audit-Id", "X-Request-Id", "Traceparent", "Tracestate", "Kubectl-Command", "Kubectl-Session",
		"Cache-Control":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-")
}

// sharedKey is equal for requests that may share a response: of the same state of an APIRoute, of one backend, with the same path, query
// and headers, and from the same caller unless all callers share.
type sharedKey struct {
	text  []byte
	names []string // room for those of headers
}

// set makes it the key of the request that the proxy sends to the backend. The fields that Connection nominates were removed before.
func (k *sharedKey) set(r *filters.Request, route *routetable.Route, c *routing.Choice, p *proxy.Proxy) {
	b := binary.BigEndian.AppendUint64(k.text[:0], uint64(route.Routing.Generation))
	b = appendTexts(b, string(route.Routing.UID), route.Routing.Backends[c.Backend].Name, c.Rule, r.Host, request.RawPath(r.URL), r.URL.RawQuery)
	names := k.names[:0]
	for name := range r.Header {
		if !isUnkeyed(name) && p.Forwards(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		b = appendTexts(appendTexts(b, name), r.Header[name]...)
	}
	clear(names)
	if proxy.AcceptsTrailers(r.Header) {
		b = appendTexts(b, "Te", "trailers")
	} else {
		b = appendTexts(b)
	}
	if who := r.User; who != nil && !c.Shared.AllCallers {
		b = appendTexts(b, who.GetName(), who.GetUID())
		b = appendTexts(b, slices.Sorted(slices.Values(who.GetGroups()))...)
		extra := who.GetExtra()
		for _, key := range slices.Sorted(maps.Keys(extra)) {
			b = appendTexts(appendTexts(b, key), extra[key]...)
		}
	}
	k.text, k.names = b, names
}

// free lets another request use it, unless it is large: a client may send a long header.
func (k *sharedKey) free() {
	if cap(k.text) <= maxKeptKey && cap(k.names) <= maxKeptKey/16 {
		sharedKeys.Put(k)
	}
}

// maxKeptKey bounds the room that is used again.
const maxKeptKey = 4 << 10

var sharedKeys = sync.Pool{New: func() any { return &sharedKey{make([]byte, 0, 1<<10), make([]string, 0, 16)} }}

// appendTexts appends texts with their number and lengths, so that no two lists are the same bytes.
func appendTexts(b []byte, texts ...string) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(len(texts)))
	for _, text := range texts {
		b = append(binary.BigEndian.AppendUint64(b, uint64(len(text))), text...)
	}
	return b
}

// add adds texts to a hash as appendTexts does.
func add(h hash.Hash, texts ...string) { _, _ = h.Write(appendTexts(nil, texts...)) }
