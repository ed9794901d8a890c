package fleet

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"portico.dev/internal/filters"
	"portico.dev/internal/fleet/identity"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/respond"
	"portico.dev/internal/server"
)

// PathPrefix is the path below which the clusters are.
const PathPrefix = "/clusters/"

// selection is the cluster of a request. It is a value of the request's context.
type selection struct {
	name   string
	member *member // nil if there is no such cluster, which only users who may use it learn
	prefix string  // of the path, which was removed; empty if the host selects the cluster
	token  bool    // the cluster authenticates the user
}

type selectionKey struct{}

// selected returns the selection of a request that Handler has passed to a chain.
func selected(ctx context.Context) *selection { return ctx.Value(selectionKey{}).(*selection) }

// Handler returns the handler of all requests: those for clusters, and all others, which next serves.
func (f *Fleet) Handler(next http.Handler) (http.Handler, error) {
	users, err := server.NewChain(f.usersChain(), http.HandlerFunc(f.serve))
	if err != nil {
		return nil, err
	}
	tokens, err := server.NewChain(f.tokensChain(), http.HandlerFunc(f.serve))
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, inner := f.find(r)
		if s == nil {
			next.ServeHTTP(w, r)
			return
		}
		chain := users
		if s.member != nil && identity.Passes(s.member.object.Spec.Identity.Tokens, r, f.config.OwnKey) {
			s.token, chain = true, tokens
		}
		chain.ServeHTTP(w, server.WithValue(inner, selectionKey{}, s))
	}), nil
}

// find returns the cluster of a request, and the request without the prefix of its path. It returns nil for a request that is for the
// front door itself.
func (f *Fleet) find(r *http.Request) (*selection, *http.Request) {
	members := f.members.Load()
	if m := members.byHost[hostOf(r)]; m != nil {
		return &selection{name: m.name, member: m}, r
	}
	name, ok := clusterOf(r.RequestURI)
	if !ok {
		return nil, r
	}
	b := &below{selection: selection{name: name, member: members.byName[name], prefix: r.RequestURI[:len(PathPrefix)+len(name)]}, request: *r, url: *r.URL}
	b.removePrefix()
	return &b.selection, &b.request
}

// clusterOf returns the name in a request target that begins with /clusters/NAME. A name contains nothing that can be escaped.
func clusterOf(target string) (string, bool) {
	rest, ok := strings.CutPrefix(target, PathPrefix)
	if !ok {
		return "", false
	}
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		rest = rest[:end]
	}
	return rest, len(validation.IsDNS1123Label(rest)) == 0
}

// below is a request for a cluster that its path selects, in one allocation.
type below struct {
	selection
	request http.Request
	url     url.URL
}

// removePrefix removes the prefix, which is spelled without escapes, from the path.
func (b *below) removePrefix() {
	r, u := &b.request, &b.url
	r.URL = u
	u.Path, u.RawPath = strings.TrimPrefix(u.Path, b.prefix), strings.TrimPrefix(u.RawPath, b.prefix)
	r.RequestURI = strings.TrimPrefix(r.RequestURI, b.prefix)
	if u.Path == "" {
		u.Path = "/"
		r.RequestURI = "/" + r.RequestURI
	}
}

// hostOf returns the host name that a client has requested, in lower case and without a port.
func hostOf(r *http.Request) string {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// serve sends a request that a chain has accepted to its cluster.
func (f *Fleet) serve(w http.ResponseWriter, given *http.Request) {
	s, r := selected(given.Context()), server.RequestFrom(given)
	r.Record.ReleaseSeat() // from here on the limit of its cluster counts the request, so that no cluster takes seats from others
	if s.member == nil {
		respond.Error(w, given, apierrors.NewNotFound(v1alpha1.Resource("clusters"), s.name))
		return
	}
	if err := s.member.refusal(r.Context(), s.token); err != nil {
		respond.Error(w, given, apierrors.NewServiceUnavailable(err.Error()))
		return
	}
	if err := s.member.limits.Check(r); err != nil {
		respond.Error(w, given, err)
		return
	}
	for _, name := range flowHeaders {
		delete(w.Header(), name)
	}
	if !f.serveAPIs(w, r) && !f.serveShared(w, r, s) {
		s.member.link.Serve(w, r)
	}
}

// flowHeaders contain UIDs of objects of API Priority and Fairness. The API servers set them to UIDs of objects of the cluster. A client
// of the cluster does not find the objects of the front door.
var flowHeaders = []string{
	http.CanonicalHeaderKey(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID),
	http.CanonicalHeaderKey(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID),
}

// identify writes the identity of a request into its header for the API servers of its cluster.
func identify(header http.Header, r *filters.Request) error {
	s := selected(r.Context())
	if s.token {
		return identity.Token()(header, r)
	}
	return s.member.writer(header, r)
}

// prefixOf returns the prefix of the path of a request.
func prefixOf(r *filters.Request) string { return selected(r.Context()).prefix }
