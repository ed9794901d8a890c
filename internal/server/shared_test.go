package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/metrics"
	"portico.dev/internal/routes/sharedreads"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

// sharing is an APIRoute that lets reads of the given callers share responses.
func sharing(callers string) string {
	return fmt.Sprintf(`
metadata: {name: v1.example.com, uid: u, generation: 1}
spec:
  backends: [{name: first}, {name: second, service: {namespace: ns, name: second}}]
  rules:
  - {name: testers, matches: [{headers: [{name: X-Canary, value: always}]}], backendRefs: [{name: second}], sharedReads: {maxAge: 1m, callers: %[1]s}}
  - {name: all, backendRefs: [{name: first}], sharedReads: {maxAge: 1m, callers: %[1]s, staleIfError: 1m}}
`, callers)
}

// countingBackend counts requests, and returns their number.
type countingBackend struct{ n atomic.Int64 }

func (a *countingBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"kind":"Widget","apiVersion":"example.com/v1","metadata":{},"number":%d}`, a.n.Add(1))
}

func chainFor(u user.Info, router *testRouter) http.Handler {
	return NewInternalChain(u, metrics.NewRequests(prometheus.NewRegistry()), zap.NewNop(), router.build())
}

// Of each pair of requests, the second either gets the response to the first, or is sent to the backend.
func TestEquivalentReadsShareResponse(t *testing.T) {
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	alice, bob := &user.DefaultInfo{Name: "alice", Groups: []string{"g"}}, &user.DefaultInfo{Name: "bob", Groups: []string{"g"}}
	const path = "/apis/example.com/v1/namespaces/a/widgets"
	get := func(target string, header ...string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return r
	}
	host := func(r *http.Request, name string) *http.Request { r.Host = name; return r }
	account := func(name string) user.Info {
		return &user.DefaultInfo{Name: "system:serviceaccount:kube-system:" + name}
	}
	for name, c := range map[string]struct {
		callers       string
		first, second user.Info
		one, other    *http.Request
		shared        bool
	}{
		"the same again":                     {"Same", alice, alice, get(path), get(path), true},
		"of another client":                  {"Same", alice, alice, get(path, "User-Agent", "a"), get(path, "User-Agent", "b"), true},
		"of another user":                    {"Same", alice, bob, get(path), get(path), false},
		"of another user, all share":         {"All", alice, bob, get(path), get(path), true},
		"in other groups":                    {"Same", alice, &user.DefaultInfo{Name: "alice"}, get(path), get(path), false},
		"of another uid":                     {"Same", alice, &user.DefaultInfo{Name: "alice", UID: "2", Groups: alice.Groups}, get(path), get(path), false},
		"with other extra":                   {"Same", alice, &user.DefaultInfo{Name: "alice", Groups: alice.Groups, Extra: map[string][]string{"a": {"b"}}}, get(path), get(path), false},
		"extra that reads as a group":        {"Same", &user.DefaultInfo{Name: "alice", Groups: []string{"g", "h"}}, &user.DefaultInfo{Name: "alice", Groups: []string{"g"}, Extra: map[string][]string{"h": nil}}, get(path), get(path), false},
		"another object":                     {"All", alice, alice, get(path + "/a"), get(path + "/b"), false},
		"another spelling of the path":       {"All", alice, alice, get(path + "/a"), get(path + "/%61"), false},
		"a slash that is escaped":            {"All", alice, alice, get(path + "/a/b/c%2Fd|"), get(path + "/a/b/c/d|"), false},
		"another query":                      {"All", alice, alice, get(path + "?limit=1"), get(path + "?limit=2"), false},
		"parameters in another order":        {"All", alice, alice, get(path + "?limit=1&labelSelector=a"), get(path + "?labelSelector=a&limit=1"), false},
		"another format":                     {"All", alice, alice, get(path), get(path, "Accept", "application/yaml"), false},
		"another encoding":                   {"All", alice, alice, get(path), get(path, "Accept-Encoding", "gzip"), false},
		"a header that is not known":         {"All", alice, alice, get(path), get(path, "X-Tenant", "secret"), false},
		"a header that is not forwarded":     {"All", alice, alice, get(path), get(path, "X-Original-Url", "/secret"), true},
		"another host":                       {"All", alice, alice, host(get(path), "a.example"), host(get(path), "b.example"), false},
		"another backend":                    {"All", alice, alice, get(path), get(path, "X-Canary", "always"), false},
		"a version of the past":              {"All", alice, alice, get(path), get(path + "?resourceVersion=5"), false},
		"the same version of the past again": {"All", alice, alice, get(path + "?resourceVersion=5"), get(path + "?resourceVersion=5"), false},
		"any version":                        {"All", alice, alice, get(path + "?resourceVersion=0"), get(path + "?resourceVersion=0"), true},
		"conditional":                        {"All", alice, alice, get(path), get(path, "If-None-Match", `"a"`), false},
		"the same condition again":           {"All", alice, alice, get(path, "If-None-Match", `"a"`), get(path, "If-None-Match", `"a"`), false},
		"a part":                             {"All", alice, alice, get(path, "Range", "bytes=0-1"), get(path, "Range", "bytes=0-1"), false},
		"without a cache":                    {"All", alice, alice, get(path), get(path, "Cache-Control", "No-Cache"), false},
		"a watch":                            {"All", alice, alice, get(path + "?watch=1&timeoutSeconds=1"), get(path + "?watch=1&timeoutSeconds=1"), false},
		"of the namespace controller":        {"All", alice, account("namespace-controller"), get(path), get(path), false},
		"of the garbage collector":           {"All", alice, account("generic-garbage-collector"), get(path), get(path), false},
		"of a quota":                         {"All", alice, account("resourcequota-controller"), get(path), get(path), false},
		"of an autoscaler":                   {"All", alice, account("horizontal-pod-autoscaler"), get(path), get(path), true},
		"of a kube-controller-manager":       {"All", alice, &user.DefaultInfo{Name: "system:kube-controller-manager"}, get(path), get(path), false},
		"of the front door's controllers":    {"All", alice, &user.DefaultInfo{Name: "system:apiserver"}, get(path), get(path), false},
		"a write":                            {"All", alice, alice, httptest.NewRequest(http.MethodDelete, path+"/a", nil), httptest.NewRequest(http.MethodDelete, path+"/a", nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			backend := &countingBackend{}
			router := routerOf(dispatchtest.Table(t, set, sharing(c.callers), map[string]http.Handler{"first": backend, "second": backend}))
			router.SharedReads = sharedreads.New(sharedreads.Config{})
			for _, ask := range []struct {
				who user.Info
				r   *http.Request
			}{{c.first, c.one}, {c.second, c.other}} {
				w := httptest.NewRecorder()
				chainFor(ask.who, router).ServeHTTP(w, ask.r)
				if w.Code != http.StatusOK {
					t.Fatalf("%s %s = %d %s, want 200", ask.r.Method, ask.r.URL, w.Code, w.Body)
				}
			}
			if n := backend.n.Load(); (n == 1) != c.shared {
				t.Errorf("the backend received %d of the two requests, want 1 if shared (%t)", n, c.shared)
			}
		})
	}
}

// While no backend is reachable, a read gets the last response with a warning.
func TestUnavailableBackendServesLastResponseWithWarning(t *testing.T) {
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	const path = "/apis/example.com/v1/namespaces/a/widgets"
	backend := &countingBackend{}
	text := strings.Replace(sharing("All"), "maxAge: 1m", "maxAge: 0s", 2)
	up := dispatchtest.Table(t, set, text, map[string]http.Handler{"first": backend})
	down := dispatchtest.Table(t, set, text, nil)
	table := up
	router := routerOf(nil)
	router.Routes = func() *routetable.Table { return table }
	router.SharedReads = sharedreads.New(sharedreads.Config{})
	h := chainFor(&user.DefaultInfo{Name: "alice"}, router)
	for i, c := range []struct {
		table *routetable.Table
		path  string
		code  int
		body  string
		warns bool
	}{
		{up, path, 200, `"number":1`, false},
		{down, path, 200, `"number":1`, true},
		{down, path + "/other", 503, "backend first of APIRoute v1.example.com is unavailable", false},
		{up, path, 200, `"number":2`, false},
	} {
		table = c.table
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, c.path, nil))
		if warns := strings.Contains(strings.Join(w.Header()["Warning"], ""), "does not answer"); w.Code != c.code || !strings.Contains(w.Body.String(), c.body) || warns != c.warns {
			t.Errorf("request %d = %d %s with the header %v, want %d %s, warning %t", i, w.Code, w.Body, w.Header(), c.code, c.body, c.warns)
		}
	}
}

// A58: the proxy removes the fields that Connection nominates, so the response does not match the request that the client sent.
func TestA58NominatedFieldsDoNotPoisonSharedResponse(t *testing.T) {
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	const path = "/apis/example.com/v1/namespaces/a/widgets"
	echo := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, "%s %q %q %q", name, r.Header["Accept"], r.Header["Te"], r.Header["X-Tenant"])
		})
	}
	normal := http.Header{"Accept": {"application/json"}, "X-Tenant": {"t"}}
	with := func(name string, values ...string) http.Header {
		h := normal.Clone()
		h[name] = values
		return h
	}
	for name, c := range map[string]struct {
		attack, victim http.Header
		want           string // for the victim
	}{
		"one option":           {with("Connection", "Accept"), normal, `first ["application/json"] [] ["t"]`},
		"another spelling":     {with("Connection", "aCCept"), normal, `first ["application/json"] [] ["t"]`},
		"among others":         {with("Connection", "close, ,\tAccept ,"), normal, `first ["application/json"] [] ["t"]`},
		"in a second field":    {with("Connection", "", "keep-alive", "accept"), normal, `first ["application/json"] [] ["t"]`},
		"an unknown field":     {with("Connection", "x-tenant"), normal, `first ["application/json"] [] ["t"]`},
		"several fields":       {with("Connection", "Accept,X-Tenant"), normal, `first ["application/json"] [] ["t"]`},
		"the other way round":  {normal, with("Connection", "Accept"), `first [] [] ["t"]`},
		"the field of a rule":  {http.Header{"X-Canary": {"always"}, "Connection": {"X-Canary"}}, http.Header{"X-Canary": {"always"}}, `second [] [] []`},
		"no field of a rule":   {http.Header{"X-Canary": {"always"}}, http.Header{"X-Canary": {"always"}, "Connection": {"X-Canary"}}, `first [] [] []`},
		"trailers are taken":   {with("Te", "gzip"), with("Te", "trailers"), `first ["application/json"] ["trailers"] ["t"]`},
		"a Connection of none": {with("Connection", ""), normal, `first ["application/json"] [] ["t"]`},
	} {
		t.Run(name, func(t *testing.T) {
			router := routerOf(dispatchtest.Table(t, set, sharing("All"), map[string]http.Handler{"first": echo("first"), "second": echo("second")}))
			router.SharedReads = sharedreads.New(sharedreads.Config{})
			got := ""
			for _, header := range []http.Header{c.attack, c.victim} {
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodGet, path, nil)
				r.Header = header.Clone()
				chainFor(&user.DefaultInfo{Name: "alice"}, router).ServeHTTP(w, r)
				got = w.Body.String()
			}
			if got != c.want {
				t.Errorf("response to a request with %v after one with %v = %s, want %s", c.victim, c.attack, got, c.want)
			}
		})
	}
}

// Fields that are not forwarded cannot change the response, so they do not fill the cache either.
func TestA57DroppedFieldsAreNotPartOfCacheKey(t *testing.T) {
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	backend := &countingBackend{}
	router := routerOf(dispatchtest.Table(t, set, sharing("All"), map[string]http.Handler{"first": backend}))
	router.SharedReads = sharedreads.New(sharedreads.Config{})
	h := chainFor(&user.DefaultInfo{Name: "alice"}, router)
	for i := range 10 {
		r := httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/namespaces/a/widgets", nil)
		junk := fmt.Sprint("X-Junk-", i)
		r.Header = http.Header{"Cookie": {fmt.Sprint(i)}, "X-Real-Ip": {fmt.Sprint(i)}, "Te": {fmt.Sprint(i)}, junk: {"x"}, "Connection": {junk}}
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	if got := backend.n.Load(); got != 1 {
		t.Errorf("the backend received %d equal requests, want 1", got)
	}
}

func TestA58ClientDependentResponseIsNotShared(t *testing.T) {
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	backend := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept, User-Agent")
		_, _ = fmt.Fprint(w, r.UserAgent())
	})
	router := routerOf(dispatchtest.Table(t, set, sharing("All"), map[string]http.Handler{"first": backend}))
	router.SharedReads = sharedreads.New(sharedreads.Config{})
	h := chainFor(&user.DefaultInfo{Name: "alice"}, router)
	for _, agent := range []string{"one", "two"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/namespaces/a/widgets", nil)
		r.Header.Set("User-Agent", agent)
		if h.ServeHTTP(w, r); w.Body.String() != agent {
			t.Errorf("response to a request with User-Agent %q = %q, want an unshared response", agent, w.Body)
		}
	}
}
