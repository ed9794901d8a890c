package fleet

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/server"
)

// FuzzTarget checks that the cluster and the path that were authorized are those of the request that is sent.
func FuzzTarget(f *testing.F) {
	for _, target := range []string{
		"/clusters/a/api/v1/pods?x=y", "/clusters/a", "/clusters/a?x", "/clusters/a/../b/api", "/clusters/a//api", "/clusters/%61/api", "/clusters/a%2Fapi",
		"/clusters/b/clusters/a/api", "//clusters/a", "https://a.example.com/clusters/b", "/clusters/a/api/v1/namespaces/ns/services/s/proxy/a%2Fb//c", "*",
	} {
		f.Add(target, "front.example.com")
		f.Add(target, "A.example.com.:443")
	}
	e := newEnv(f)
	a, b := &member{name: "a", object: &v1alpha1.Cluster{}}, &member{name: "b", object: &v1alpha1.Cluster{}}
	e.fleet.members.Store(&members{byName: map[string]*member{"a": a, "b": b}, byHost: map[string]*member{"a.example.com": a}})
	var authorized authorizer.Attributes
	e.allowIf(func(asked authorizer.Attributes) bool { authorized = asked; return true })
	chain := e.fleet.usersChain()
	var asked authorizer.Attributes
	chain.Authorizer = recorder{chain.Authorizer, &asked}
	var sent *http.Request
	users, err := server.NewChain(chain, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sent = r }))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, target, host string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL, r.RequestURI, r.Host = u, target, host
		r.Header.Set("Authorization", "Bearer alice")
		s, inner := e.fleet.find(r)
		if s == nil {
			return
		}
		asked, authorized, sent = nil, nil, nil
		users.ServeHTTP(httptest.NewRecorder(), inner.WithContext(context.WithValue(t.Context(), selectionKey{}, s)))
		if sent == nil {
			return // refused
		}
		path := sent.URL.RawPath
		if path == "" {
			path = sent.URL.EscapedPath()
		}
		if decoded, err := url.PathUnescape(path); err != nil || asked.GetPath() != decoded {
			t.Errorf("%q: authorized path %q, sent %q", target, asked.GetPath(), path)
		}
		if authorized.GetName() != s.name || authorized.GetResource() != "clusters" || authorized.GetSubresource() != "proxy" {
			t.Errorf("%q: authorized %q, sent to %q", target, authorized.GetName(), s.name)
		}
		if s.prefix != "" && (s.prefix != PathPrefix+s.name || !strings.HasPrefix(target, s.prefix)) {
			t.Errorf("%q: prefix %q of cluster %q", target, s.prefix, s.name)
		}
		if given, _, _ := strings.Cut(target[len(s.prefix):], "?"); given != "" && given != path && !strings.Contains(given, "%") {
			t.Errorf("%q: sent %q, want %q", target, path, given)
		}
	})
}

// recorder records what was authorized.
type recorder struct {
	authorizer.UnconditionalAuthorizer
	asked *authorizer.Attributes
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (r recorder) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	*r.asked = a
	return r.UnconditionalAuthorizer.Authorize(ctx, a)
}
