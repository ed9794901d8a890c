package dispatch

import (
	"encoding/binary"
	"hash"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/filters"
	"portico.dev/internal/proxy"
	"portico.dev/internal/request"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routes/sharedreads"
	"portico.dev/internal/routetable"
)

// sharedRead serves equal reads from one response. Each of these reads has already been authorized.
type sharedRead struct {
	next   Handler
	cache  *sharedreads.Cache
	proxy  *proxy.Proxy
	route  *routetable.Route
	choice *routing.Choice
}

// Serve implements Handler.
func (h *sharedRead) Serve(w http.ResponseWriter, r *filters.Request) {
	if !MayShareRead(r, h.route.Options.LongRunningSubresources) {
		h.next.Serve(w, r)
		return
	}
	r.Record.ServedBy = h.route.Parts[h.choice.Backend].Name
	key := sharedKeys.Get().(*sharedKey)
	key.set(r, h.route, h.choice, h.proxy)
	served := h.cache.ServeKept(w, key.text, h.route.Name, h.choice.Shared.MaxAge)
	text := ""
	if !served {
		text = string(key.text)
	}
	key.free()
	if !served {
		h.send(w, r, text)
	}
}

// send serves a read for which no response is cached.
func (h *sharedRead) send(w http.ResponseWriter, r *filters.Request, key string) {
	shared := h.choice.Shared
	h.cache.Serve(w, r.Request, sharedreads.Request{
		Key: key, User: r.UserName, Of: h.route.Name,
		Policy:  sharedreads.Policy{MaxAge: shared.MaxAge, StaleIfError: shared.StaleIfError},
		Unkeyed: IsUnkeyed,
		Waiting: r.Record.ReleaseSeat, // the request in flight holds a concurrency slot
		Send:    func(w http.ResponseWriter) { h.next.Serve(w, r) },
	})
}

// MayShareRead reports whether a read may be served from a shared response.
func MayShareRead(r *filters.Request, longRunning []string) bool {
	if _, plain := plainRead(r, longRunning); !plain || r.Header["Pragma"] != nil {
		return false
	}
	if needsFreshReads[r.UserName] {
		return false
	}
	for _, v := range r.Header["Cache-Control"] {
		if strings.Contains(strings.ToLower(v), "no-") { // no-cache and no-store
			return false
		}
	}
	return true
}

// needsFreshReads contains the users of controllers that delete objects if a read does not return certain other
// objects. A stale response could make them finalize a namespace with objects in it. kube-controller-manager uses one
// user for all controllers, unless it runs with --use-service-account-credentials.
var needsFreshReads = map[string]bool{
	user.APIServerUser: true, user.KubeControllerManager: true,
	serviceaccount.MakeUsername(metav1.NamespaceSystem, "namespace-controller"):      true,
	serviceaccount.MakeUsername(metav1.NamespaceSystem, "generic-garbage-collector"): true,
	serviceaccount.MakeUsername(metav1.NamespaceSystem, "resourcequota-controller"):  true,
}

// IsUnkeyed reports whether a forwarded header field is not part of the key: it identifies the client or the single
// request. All other forwarded fields are part of the key. A response whose Vary header names an unkeyed field is not
// shared (RFC 9111, section 4.1).
func IsUnkeyed(name string) bool {
	switch name {
	case "Authorization", "User-Agent", "Audit-Id", "X-Request-Id", "Traceparent", "Tracestate", "Kubectl-Command", "Kubectl-Session",
		"Cache-Control":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-")
}

// sharedKey is equal for requests that may share a response. It contains the APIRoute and its generation, the
// backend, the cluster, the path, the query, the header, and the user unless all callers share.
type sharedKey struct {
	text  []byte
	names []string // buffer for header names
}

// set computes the key of r as the proxy forwards it.
func (k *sharedKey) set(r *filters.Request, route *routetable.Route, c *routing.Choice, p *proxy.Proxy) {
	b := binary.BigEndian.AppendUint64(k.text[:0], uint64(route.Routing.Generation))
	k.text = appendTexts(b, filters.ClusterOf(r.User), string(route.Routing.UID), route.Routing.Backends[c.Backend].Name, c.Rule)
	k.add(r, p)
	if who := r.User; who != nil && !c.Shared.AllCallers {
		b := appendTexts(k.text, who.GetName(), who.GetUID())
		b = appendTexts(b, slices.Sorted(slices.Values(who.GetGroups()))...)
		extra := who.GetExtra()
		for _, key := range slices.Sorted(maps.Keys(extra)) {
			b = appendTexts(appendTexts(b, key), extra[key]...)
		}
		k.text = b
	}
}

// add adds everything that the server receives of r, except the user.
func (k *sharedKey) add(r *filters.Request, p *proxy.Proxy) {
	b := appendTexts(k.text, r.Host, request.RawPath(r.URL), r.URL.RawQuery)
	names := k.names[:0]
	for name := range r.Header {
		if !IsUnkeyed(name) && p.Forwards(name) {
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
	k.text, k.names = b, names
}

// ReadKey returns a key that is equal for reads of one server with the same response, if responses do not depend on the user. server
// identifies the server.
func ReadKey(r *filters.Request, p *proxy.Proxy, server ...string) string {
	k := sharedKeys.Get().(*sharedKey)
	defer k.free()
	k.text = appendTexts(k.text[:0], server...)
	k.add(r, p)
	return string(k.text)
}

// free returns the key to the pool, unless a client made it large.
func (k *sharedKey) free() {
	if cap(k.text) <= maxKeptKey && cap(k.names) <= maxKeptKey/16 {
		sharedKeys.Put(k)
	}
}

// maxKeptKey bounds the size of pooled keys.
const maxKeptKey = 4 << 10

var sharedKeys = sync.Pool{New: func() any { return &sharedKey{make([]byte, 0, 1<<10), make([]string, 0, 16)} }}

// appendTexts appends texts with their number and lengths. Different lists have different encodings.
func appendTexts(b []byte, texts ...string) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(len(texts)))
	for _, text := range texts {
		b = append(binary.BigEndian.AppendUint64(b, uint64(len(text))), text...)
	}
	return b
}

// add writes texts to a hash, encoded by appendTexts.
func add(h hash.Hash, texts ...string) { _, _ = h.Write(appendTexts(nil, texts...)) }
