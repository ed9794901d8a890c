package fleet

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/discovery"
	"portico.dev/internal/dispatch"
	"portico.dev/internal/filters"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/openapi"
	"portico.dev/internal/pki"
	"portico.dev/internal/proxy"
	"portico.dev/internal/transport"
)

const (
	extensionAddress = "10.2.0.1:443"
	metricsPath      = "/apis/metrics.k8s.io/v1beta1"
	clusterPods      = "/clusters/a" + metricsPath + "/namespaces/ns/pods"
)

var metrics1 = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}

// extension is an extension server of the front door for metrics.k8s.io. It implements APIs.
type extension struct {
	t        testing.TB
	backend  *transport.Backend
	proxy    *proxy.Proxy
	document openapi.Document

	mu       sync.Mutex // guards the fields below
	absent   bool       // no extension server is registered
	requests []received
}

// extend starts an extension server, and makes it serve cluster a.
func (e *env) extend() *extension {
	e.t.Helper()
	x := &extension{t: e.t, proxy: e.fleet.config.Proxy}
	e.fleet.config.APIs = x
	e.listen(extensionAddress, x, e.pair(e.ca, pki.Leaf{CommonName: "metrics", DNSNames: []string{"metrics.kube-system.svc"}, Server: true}))
	set := transport.New(e.fleet.config.Transport)
	e.t.Cleanup(set.Close)
	var err error
	x.backend, err = set.Backend(transport.Spec{Name: "kube-system/metrics:443", ServerName: "metrics.kube-system.svc", CABundle: e.ca.PEM(),
		Endpoints: []transport.Endpoint{{Address: extensionAddress}}})
	if err != nil {
		e.t.Fatal(err)
	}
	if x.document, err = openapi.NewDocument("apis/metrics.k8s.io/v1beta1", []byte(`{"openapi":"3.0.0"}`)); err != nil {
		e.t.Fatal(err)
	}
	e.change("a", func(s *v1alpha1.ClusterSpec) { s.APIServices = []string{"v1beta1.metrics.k8s.io"} })
	return x
}

func (x *extension) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	x.requests = append(x.requests, received{target: r.RequestURI, header: r.Header.Clone()})
	x.mu.Unlock()
	if r.URL.Query().Get("watch") == "" {
		_, _ = io.WriteString(w, "extension")
		return
	}
	for _, event := range []string{"first\n", "second\n"} {
		_, _ = io.WriteString(w, event)
		w.(http.Flusher).Flush()
		time.Sleep(10 * time.Second)
	}
}

func (x *extension) taken() []received {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := x.requests
	x.requests = nil
	return list
}

func (x *extension) Proxied(gv schema.GroupVersion) (dispatch.Handler, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return dispatch.HandlerFunc(func(w http.ResponseWriter, r *filters.Request) {
		r.Record.ServedBy, r.Record.Proxied = "v1beta1.metrics.k8s.io", true
		x.proxy.Serve(w, r, proxy.Destination{Backend: x.backend, APIService: "v1beta1.metrics.k8s.io"})
	}), gv == metrics1 && !x.absent
}

func (x *extension) Overlay(gvs []schema.GroupVersion) *discovery.Overlay {
	return discovery.NewOverlay(nil, gvs, nil)
}

func (x *extension) Document(gv schema.GroupVersion) (openapi.Document, bool) {
	return x.document, gv == metrics1
}

func (x *extension) OpenAPI() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "document "+r.RequestURI) })
}

// only fails the test unless the extension server received one request since the last call.
func (x *extension) only(situation string) received {
	x.t.Helper()
	list := x.taken()
	if len(list) != 1 {
		x.t.Fatalf("%s: the extension server received %d requests, want 1", situation, len(list))
	}
	return list[0]
}

func TestAPIsOfTheFrontDoor(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a", "a.example.com")
		x := e.extend()
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Identity.UserPrefix = "front:" })
		a.allowRights("front:alice list pods", "front:alice watch pods", "front:alice get "+metricsPath)
		a.taken()
		for _, c := range [][2]string{{own, "/clusters/a"}, {"a.example.com", ""}} {
			for _, target := range []string{metricsPath, metricsPath + "/namespaces/ns/pods?limit=5"} {
				if got := e.get(c[0], c[1]+target, "alice/dev"); got.code != 200 || got.body != "extension" {
					t.Errorf("GET %s = %d %s, want 200 of the extension server", target, got.code, got.body)
				}
				got := x.only(target)
				if got.target != target || got.header.Get("X-Remote-User") != "alice" || !slices.Equal(got.header["X-Remote-Group"], []string{user.AllAuthenticated, "dev"}) ||
					extraOfCluster(got.header) != "a" || got.header.Get("Authorization") != "" {
					t.Errorf("the extension server received %+v, want %s by alice in dev, for cluster a, without a token", got, target)
				}
			}
		}
		got := e.get(own, clusterPods+"?watch=true&timeoutSeconds=60", "alice")
		if got.code != 200 || got.body != "first\nsecond\n" {
			t.Errorf("watch = %d %q, want two events", got.code, got.body)
		}
		x.taken()
		for _, target := range []string{"/clusters/a/apis/metrics.k8s.io/v1/pods", "/clusters/a/apis/metrics/v1beta1/pods", "/clusters/a/api/v1/pods"} {
			if got := e.get(own, target, "alice"); got.body != "a" {
				t.Errorf("GET %s = %d %s, want the API server of a", target, got.code, got.body)
			}
		}
		if n := len(a.taken()); n != 3 || len(x.taken()) != 0 {
			t.Errorf("the API server received %d requests, want 3, and the extension server none", n)
		}
		x.absent = true
		if got := e.get(own, clusterPods, "alice"); got.code != 503 || !strings.Contains(got.body, "no extension server of the front door serves APIService v1beta1.metrics.k8s.io") {
			t.Errorf("GET without an extension server = %d %s, want 503 with the name of the APIService", got.code, got.body)
		}
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.APIServices = nil })
		if got := e.get(own, clusterPods, "alice"); got.body != "a" {
			t.Errorf("GET without apiServices = %d %s, want the API server of a", got.code, got.body)
		}
	})
}

// extraOfCluster returns the cluster in identity headers.
func extraOfCluster(h http.Header) string {
	return strings.Join(h["X-Remote-Extra-"+http.CanonicalHeaderKey("portico.dev%2fcluster")], ",")
}

// TestA68BothAuthorizeAPIsOfTheFrontDoor checks that neither a right at the front door nor one in the cluster is enough.
func TestA68BothAuthorizeAPIsOfTheFrontDoor(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		x := e.extend()
		a.allowRights("alice list pods", "bob list pods")
		for _, tt := range []struct {
			name, user string
			rights     []string
			code       int
			message    string
		}{
			{"no right to use the cluster", "alice", []string{"alice list pods "}, 403, "requires the right to list clusters/proxy"},
			{"no right in the cluster", "carol", []string{"carol list a", "carol list pods "}, 403, `User \"carol\" cannot list resource \"pods\" in API group \"metrics.k8s.io\" in the namespace \"ns\"`},
			{"no right at the front door", "bob", []string{"bob list a"}, 403, "the front door, which serves this API for the cluster, requires this right, too"},
			{"all rights", "alice", []string{"alice list a", "alice list pods "}, 200, "extension"},
		} {
			e.allowRights(tt.rights...)
			if got := e.get(own, clusterPods, tt.user); got.code != tt.code || !strings.Contains(got.body, tt.message) {
				t.Errorf("%s: %d %s, want %d %s", tt.name, got.code, got.body, tt.code, tt.message)
			}
			if sent := len(x.taken()) == 1; sent != (tt.code == 200) {
				t.Errorf("%s: the extension server received the request: %t", tt.name, sent)
			}
		}
		_ = a.server.Close()
		settleDown()
		if got := e.get(own, clusterPods, "alice"); got.code != 200 {
			t.Errorf("GET after a decision, while the cluster is down = %d %s, want 200", got.code, got.body)
		}
		e.allowAll()
		if got := e.get(own, clusterPods, "dave"); got.code != 503 {
			t.Errorf("GET without a decision, while the cluster is down = %d %s, want 503", got.code, got.body)
		}
	})
}

// TestA69ClientsCannotNameACluster checks that the extension server sees the cluster of the request, whatever the client and its
// authenticator say.
func TestA69ClientsCannotNameACluster(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		x := e.extend()
		a.allowRights("alice list pods", "spoof list pods")
		for name, c := range map[string]struct{ user, field string }{
			"extra of the authenticator": {"spoof", "A: b"},
			"header":                     {"alice", "X-Remote-Extra-Portico.dev%2fcluster: b"},
			"header in another case":     {"alice", "x-remote-extra-%70ortico.dev%2Fcluster: b"},
		} {
			if got := e.get(own, clusterPods, c.user, c.field); got.code != 200 {
				t.Fatalf("%s: %d %s, want 200", name, got.code, got.body)
			}
			got := x.only(name)
			for field := range got.header {
				if strings.HasPrefix(field, "X-Remote-Extra-") && !strings.EqualFold(field, "X-Remote-Extra-portico.dev%2fcluster") {
					t.Errorf("%s: the extension server received %s", name, field)
				}
			}
			if cluster := extraOfCluster(got.header); cluster != "a" {
				t.Errorf("%s: the extension server received cluster %q, want a", name, cluster)
			}
		}
		for _, field := range []string{"Impersonate-Extra-Portico.dev%2fcluster: b", "impersonate-extra-portico%2Edev%2Fcluster: b"} {
			for _, target := range []string{clusterPods, metricsPath + "/pods"} {
				if got := e.get(own, target, "alice", "Impersonate-User: alice", field); got.code != 403 || !strings.Contains(got.body, "only this server writes this key") {
					t.Errorf("GET %s with %s = %d %s, want 403", target, field, got.code, got.body)
				}
			}
		}
		if n := len(x.taken()); n != 0 {
			t.Errorf("the extension server received %d requests, want 0", n)
		}
	})
}

// TestA69UsersOfAClusterHaveOtherNamesAtExtensionServers checks that a user of the cluster has none of the rights of a user of the front
// door with the same name and groups.
func TestA69UsersOfAClusterHaveOtherNamesAtExtensionServers(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		x := e.extend()
		token := serviceAccountToken("cluster")
		a.tokens[token] = authenticationv1.UserInfo{Username: "alice", UID: "7", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated},
			Extra: map[string]authenticationv1.ExtraValue{"scopes": {"all"}, filters.ClusterExtra: {"b"}}}
		a.allowRights("alice list pods")
		e.allowRights("alice list pods ")
		if got := e.get(own, clusterPods, token); got.code != 403 || !strings.Contains(got.body, `User \"cluster:a:alice\" cannot list`) {
			t.Errorf("GET with the rights of another alice = %d %s, want 403 for cluster:a:alice", got.code, got.body)
		}
		e.allowRights("cluster:a:alice list pods ")
		if got := e.get(own, clusterPods, token); got.code != 200 {
			t.Fatalf("GET with the rights of cluster:a:alice = %d %s, want 200", got.code, got.body)
		}
		h := x.only("a token of the cluster").header
		if h.Get("X-Remote-User") != "cluster:a:alice" || !slices.Equal(h["X-Remote-Group"], []string{user.AllAuthenticated}) || extraOfCluster(h) != "a" ||
			h.Get("X-Remote-Extra-Scopes") != "" || h.Get("X-Remote-Uid") != "" || h.Get("Authorization") != "" {
			t.Errorf("the extension server received %v, want only cluster:a:alice in system:authenticated, for cluster a", h)
		}
		if got := e.get(own, clusterPods, token, "Impersonate-User: bob"); got.code != 403 || !strings.Contains(got.body, "cannot authorize the impersonation") {
			t.Errorf("GET with an impersonation by the cluster's user = %d %s, want 403", got.code, got.body)
		}
		if n := len(x.taken()); n != 0 {
			t.Errorf("the extension server received %d requests, want 0", n)
		}
	})
}

const (
	acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
	acceptProtobuf   = "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// documentsOfACluster serves discovery and OpenAPI documents with ETags, and refuses mallory.
func documentsOfACluster(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Impersonate-User") == "mallory" {
		http.Error(w, "you may not", http.StatusForbidden)
		return
	}
	body, ok := map[string]string{
		"/apis":                `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}},{"name":"metrics.k8s.io","versions":[{"groupVersion":"metrics.k8s.io/v1","version":"v1"}],"preferredVersion":{"groupVersion":"metrics.k8s.io/v1","version":"v1"}}]}`,
		"/apis/metrics.k8s.io": `{"kind":"APIGroup","apiVersion":"v1","name":"metrics.k8s.io","versions":[{"groupVersion":"metrics.k8s.io/v1","version":"v1"}],"preferredVersion":{"groupVersion":"metrics.k8s.io/v1","version":"v1"}}`,
		"/openapi/v3":          `{"paths":{"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=A"},"apis/metrics.k8s.io/v1beta1":{"serverRelativeURL":"/openapi/v3/apis/metrics.k8s.io/v1beta1?hash=OLD"}}}`,
	}[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/apis" && strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList") {
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		body = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"apps"},"versions":[{"version":"v1","freshness":"Current"}]},` +
			`{"metadata":{"name":"metrics.k8s.io"},"versions":[{"version":"v1","freshness":"Current"},{"version":"v1beta1","freshness":"Current","resources":[{"resource":"replaced","responseKind":{"group":"","version":"","kind":"Replaced"},"scope":"Cluster","singularResource":"","verbs":["get"]}]}]}]}`
	}
	w.Header().Set("ETag", `"1"`)
	_, _ = io.WriteString(w, body)
}

func TestDocumentsContainAPIsOfTheFrontDoor(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		x := e.extend()
		a.allowRights("alice get /openapi/v3/apis/metrics.k8s.io/v1beta1")
		serve := http.HandlerFunc(documentsOfACluster)
		a.documents.Store(&serve)
		const openAPI = "/openapi/v3/apis/metrics.k8s.io/v1beta1"
		for _, tt := range []struct{ target, accept, contentType, body string }{
			{"/apis", "application/json", "application/json", `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps",*},{"name":"metrics.k8s.io","versions":[{"groupVersion":"metrics.k8s.io/v1","version":"v1"},{"groupVersion":"metrics.k8s.io/v1beta1","version":"v1beta1"}],"preferredVersion":{"groupVersion":"metrics.k8s.io/v1","version":"v1"}}]}`},
			{"/apis/", acceptAggregated, "application/json", `{"kind":"APIGroupList",*"metrics.k8s.io/v1beta1"*`},
			{"/apis", "application/yaml", "application/yaml", "apiVersion: v1\n*groupVersion: metrics.k8s.io/v1beta1\n*"},
			{"/apis", acceptAggregated, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2",*{"name":"apps"*"versions":[{"version":"v1","freshness":"Current"},{"version":"v1beta1","freshness":"Stale"}]}]}`},
			{"/apis", acceptProtobuf, "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "k8s\x00*v1beta1*Stale*"},
			{"/apis/metrics.k8s.io", "application/json", "application/json", `{"kind":"APIGroup","apiVersion":"v1","name":"metrics.k8s.io","versions":[{"groupVersion":"metrics.k8s.io/v1","version":"v1"},{"groupVersion":"metrics.k8s.io/v1beta1","version":"v1beta1"}],"preferredVersion":{"groupVersion":"metrics.k8s.io/v1","version":"v1"}}`},
			{"/openapi/v3", "application/json", "application/json", `{"paths":{"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=A"},"apis/metrics.k8s.io/v1beta1":{"serverRelativeURL":"` + x.document.URL() + `"}}}`},
		} {
			got := e.get(own, "/clusters/a"+tt.target, "alice", "Accept: "+tt.accept)
			etag := got.header.Get("ETag")
			if got.code != 200 || got.header.Get("Content-Type") != tt.contentType || etag == "" || etag == `"1"` || !matches(got.body, tt.body) {
				t.Errorf("GET %s (%s) = %d %s with %s and ETag %s, want %s with another ETag and %s", tt.target, tt.accept, got.code, got.body, got.header.Get("Content-Type"), etag, tt.contentType, tt.body)
			}
			if got := e.get(own, "/clusters/a"+tt.target, "bob", "Accept: "+tt.accept, "If-None-Match: "+etag); got.code != 304 {
				t.Errorf("GET %s (%s) with the ETag = %d, want 304", tt.target, tt.accept, got.code)
			}
			if got := e.get(own, "/clusters/a"+tt.target, "mallory", "Accept: "+tt.accept); got.code != 200 || got.body != "a" {
				t.Errorf("GET %s by a user whom the cluster refuses = %d %s, want the response of the API server", tt.target, got.code, got.body)
			}
		}
		if got := e.get(own, "/clusters/a"+x.document.URL(), "alice"); got.code != 200 || got.body != "document "+x.document.URL() {
			t.Errorf("GET %s = %d %s, want the document of the front door", openAPI, got.code, got.body)
		}
		if got := e.get(own, "/clusters/a"+openAPI+"?hash=OLD", "alice"); got.code != 301 || got.header.Get("Location") != "/clusters/a"+x.document.URL() {
			t.Errorf("GET with an old hash = %d to %s, want 301 to the document below /clusters/a", got.code, got.header.Get("Location"))
		}
		if got := e.get(own, "/clusters/a"+openAPI, "bob"); got.code != 403 {
			t.Errorf("GET %s by bob = %d %s, want 403", openAPI, got.code, got.body)
		}
		before := e.get(own, "/clusters/a/apis", "alice", "Accept: "+acceptAggregated).header.Get("ETag")
		e.change("a", func(s *v1alpha1.ClusterSpec) {
			s.APIServices = []string{"v1beta1.metrics.k8s.io", "v1.projects.example.com"}
		})
		got := e.get(own, "/clusters/a/apis", "alice", "Accept: "+acceptAggregated, "If-None-Match: "+before)
		if got.code != 200 || !strings.Contains(got.body, "projects.example.com") {
			t.Errorf("GET with another group-version = %d %s, want 200 with projects.example.com", got.code, got.body)
		}
		if got := e.get(own, "/clusters/a/apis/projects.example.com", "alice"); got.code != 200 || !json.Valid([]byte(got.body)) {
			t.Errorf("GET of a group that the cluster does not have = %d %s, want 200", got.code, got.body)
		}
		_ = a.server.Close()
		got = e.get(own, "/clusters/a/apis", "alice", "Accept: "+acceptAggregated)
		if got.code != 200 || !strings.Contains(got.body, "projects.example.com") || !strings.Contains(got.header.Get("Warning"), "does not answer") {
			t.Errorf("GET while the cluster is down = %d %s with Warning %q, want the last document with a Warning", got.code, got.body, got.header.Get("Warning"))
		}
	})
}

// matches reports whether text consists of the parts of a pattern, with anything in place of each star.
func matches(text, pattern string) bool {
	parts := strings.Split(pattern, "*")
	if !strings.HasPrefix(text, parts[0]) || !strings.HasSuffix(strings.TrimSpace(text), strings.TrimSpace(parts[len(parts)-1])) {
		return false
	}
	for _, part := range parts {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}

func TestNeedOfReviews(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		a.lacks.Store("subjectaccessreviews")
		time.Sleep(6 * time.Minute)
		if c := e.condition("a", v1alpha1.ConditionPermitted); c.Status != "True" {
			t.Errorf("Permitted without spec.apiServices = %+v, want True", c)
		}
		e.extend()
		if c := e.condition("a", v1alpha1.ConditionPermitted); c.Status != "False" || !strings.Contains(c.Message, "create subjectaccessreviews.authorization.k8s.io") {
			t.Errorf("Permitted with spec.apiServices = %+v, want False with the missing right", c)
		}
	})
}
