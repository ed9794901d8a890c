package server

import (
	"encoding/json"
	"fmt"
	"io"
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
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

func routedChain(table *routetable.Table) http.Handler {
	return NewInternalChain(&user.DefaultInfo{Name: "alice"}, metrics.NewRequests(prometheus.NewRegistry()), zap.NewNop(), routerOf(table).build())
}

// metricsOf lists a metric for some pods, as custom metrics servers do.
func metricsOf(pods ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var items []string
		for _, pod := range pods {
			items = append(items, fmt.Sprintf(`{"describedObject":{"kind":"Pod","namespace":"a","name":%q,"apiVersion":"v1"},"metricName":"m","value":"1"}`, pod))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/v1beta1","metadata":{},"items":[%s]}`, strings.Join(items, ","))
	})
}

func refusing(code int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"message":"from the backend"}`, code)
	})
}

const byName = `
metadata: {name: v1beta1.custom.metrics.k8s.io}
spec:
  backends: [{name: first}, {name: second, service: {namespace: ns, name: second}}, {name: spare, service: {namespace: ns, name: spare}}]
  rules:
  - {name: queues, matches: [{metrics: ["queue_*"]}], backendRefs: [{name: second}], fallback: spare}
  - {name: webs, matches: [{names: ["web-*"]}], backendRefs: [{name: second}]}
`

func podsIn(t *testing.T, body []byte) string {
	t.Helper()
	var list struct {
		Items []struct {
			DescribedObject struct{ Name string }
		}
	}
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatalf("decoding the list %s failed: %v, want no error", body, err)
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.DescribedObject.Name)
	}
	return strings.Join(names, " ")
}

func TestListOfSeveralBackendsIsMerged(t *testing.T) {
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	const all = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/a/pods/*/m"
	for name, c := range map[string]struct {
		first, second http.Handler
		code          int
		pods, warning string
	}{
		"each object comes from its backend": {metricsOf("db-1", "web-9"), metricsOf("web-1", "db-9"), 200, "web-1 db-1", ""},
		"one is down":                        {metricsOf("db-1"), nil, 200, "db-1", "second (MissingEndpoints)"},
		"one answers 500":                    {metricsOf("db-1"), refusing(500), 200, "db-1", "second (answered 500)"},
		"one does not know the metric":       {metricsOf("db-1"), refusing(404), 200, "db-1", ""},
		"none knows the metric":              {refusing(404), refusing(404), 404, "", ""},
		"one refuses the user":               {metricsOf("db-1"), refusing(403), 403, "", ""},
		"all are down":                       {nil, nil, 503, "", ""},
		"one answers with something else":    {metricsOf("db-1"), named("text"), 200, "db-1", "second ("},
		"the connection of one breaks":       {metricsOf("db-1"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), 200, "db-1", "second ("},
	} {
		t.Run(name, func(t *testing.T) {
			h := routedChain(dispatchtest.Table(t, set, byName, map[string]http.Handler{"first": c.first, "second": c.second}))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, all, nil))
			if w.Code != c.code {
				t.Fatalf("GET of the merged list = %d %s, want %d", w.Code, w.Body, c.code)
			}
			if warning := w.Header().Get("Warning"); !strings.Contains(warning, c.warning) || (c.warning == "") != (warning == "") {
				t.Errorf("Warning of the merged list = %q, want %q", warning, c.warning)
			}
			if c.code == 200 {
				if got := podsIn(t, w.Body.Bytes()); got != c.pods {
					t.Errorf("pods in the merged list = %s, want %s", got, c.pods)
				}
			}
		})
	}
}

func TestRequestIsSentToBackendOfRuleOrFallback(t *testing.T) {
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	const root = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/a/pods/"
	for name, c := range map[string]struct {
		up     []string
		target string
		code   int
		body   string
	}{
		"no rule":                        {[]string{"first", "second", "spare"}, root + "db-1/m", 200, "first"},
		"a rule":                         {[]string{"first", "second", "spare"}, root + "*/queue_x", 200, "second"},
		"its fallback":                   {[]string{"first", "spare"}, root + "*/queue_x", 200, "spare"},
		"neither":                        {[]string{"first"}, root + "*/queue_x", 503, "backend second of APIRoute v1beta1.custom.metrics.k8s.io is unavailable (MissingEndpoints"},
		"a rule without fallback":        {[]string{"first", "spare"}, root + "web-1/m", 503, "backend second of APIRoute"},
		"the document is from discovery": {[]string{"first"}, "/apis/custom.metrics.k8s.io/v1beta1", 200, "discovery"},
	} {
		t.Run(name, func(t *testing.T) {
			handlers := map[string]http.Handler{}
			for _, backend := range c.up {
				handlers[backend] = named(backend)
			}
			h := routedChain(dispatchtest.Table(t, set, byName, handlers))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, c.target, nil))
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.body) {
				t.Errorf("GET %s = %d %s, want %d %s", c.target, w.Code, w.Body, c.code, c.body)
			}
		})
	}
}

// The fallback also serves requests that the selected backend did not answer before a probe detects the failure.
func TestUnansweredRequestIsSentToFallback(t *testing.T) {
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	broken := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	h := routedChain(dispatchtest.Table(t, set, byName, map[string]http.Handler{"first": named("first"), "second": broken, "spare": named("spare")}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/apis/custom.metrics.k8s.io/v1beta1/namespaces/a/pods/x/queue_x", nil))
	if w.Code != 200 || w.Body.String() != "spare" {
		t.Errorf("GET of a metric whose backend does not answer = %d %s, want 200 spare", w.Code, w.Body)
	}
}

func TestUnmergeableRequestIsRejected(t *testing.T) {
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	const route = `
metadata: {name: v1.example.com}
spec:
  backends: [{name: old}, {name: new, service: {namespace: ns, name: new}}]
  rules: [{name: moved, matches: [{namespaces: [moved]}], backendRefs: [{name: new}]}]
`
	stored := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7"},"items":[]}`)
	})
	h := routedChain(dispatchtest.Table(t, set, route, map[string]http.Handler{"old": stored, "new": stored}))
	for target, want := range map[string]string{
		"GET /apis/example.com/v1/widgets":            "lists with resource versions are not merged",
		"GET /apis/example.com/v1/widgets?watch=1":    "name the namespace or the object",
		"DELETE /apis/example.com/v1/widgets":         "name the namespace or the object",
		"GET /apis/example.com/v1/widgets?continue=x": "leave out continue",
	} {
		method, path, _ := strings.Cut(target, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if w.Code != 400 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s = %d %s, want 400 %s", target, w.Code, w.Body, want)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/namespaces/moved/widgets", nil))
	if w.Code != 200 {
		t.Errorf("list of one namespace = %d %s, want 200", w.Code, w.Body)
	}
}

const aliasRoute = `
metadata: {name: v1.metrics.k8s.io}
spec: {backends: [{name: server, version: v1beta1}]}
`

func TestA44AliasRequestsVersionOfBackend(t *testing.T) {
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	var asked []string
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.RequestURI+" "+r.Header.Get("Accept"))
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1beta1","items":[{"apiVersion":"metrics.k8s.io/v1beta1"}]}`)
	})
	h := routedChain(dispatchtest.Table(t, set, aliasRoute, map[string]http.Handler{"server": server}))
	for _, c := range []struct {
		request, accept string
		code            int
		body, asked     string
	}{
		{"GET /apis/metrics.k8s.io/v1/nodes?labelSelector=a%3Db", "", 200, `{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1","items":[{"apiVersion":"metrics.k8s.io/v1"}]}`, "GET /apis/metrics.k8s.io/v1beta1/nodes?labelSelector=a%3Db application/json"},
		{"HEAD /apis/metrics.k8s.io/v1/nodes", "", 200, "", "HEAD /apis/metrics.k8s.io/v1beta1/nodes application/json"},
		{"POST /apis/metrics.k8s.io/v1/nodes", "", 405, "for reads only", ""},
		{"DELETE /apis/metrics.k8s.io/v1/nodes/a", "", 405, "for reads only", ""},
		{"GET /apis/metrics.k8s.io/v1/nodes", "application/yaml", 406, "", ""},
	} {
		asked = nil
		method, target, _ := strings.Cut(c.request, " ")
		r := httptest.NewRequest(method, target, nil)
		if c.accept != "" {
			r.Header.Set("Accept", c.accept)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.body) || strings.Join(asked, "\n") != c.asked {
			t.Errorf("%s with Accept %q = %d %s and the backend requests %q, want %d %s and %q", c.request, c.accept, w.Code, w.Body, asked, c.code, c.body, c.asked)
		}
	}
}

// A rule changes neither the authorized attributes nor the user that a backend receives.
func TestA43RouteKeepsAuthorizedAttributes(t *testing.T) {
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	var asked atomic.Int64 // the backends of a merged list are requested concurrently
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if who := r.Header.Get("X-Remote-User"); who != "alice" {
			t.Errorf("user of the request at the backend = %q, want alice", who)
		}
		metricsOf("web-1", "db-1").ServeHTTP(w, r)
	})
	table := dispatchtest.Table(t, set, byName, map[string]http.Handler{"first": server, "second": server, "spare": server})
	b := newBench("alice get pods *")
	router := routerOf(table)
	b.handler = router.build().ServeHTTP
	for target, want := range map[string]int64{
		"/apis/custom.metrics.k8s.io/v1beta1/namespaces/a/pods/*/m":       2,
		"/apis/custom.metrics.k8s.io/v1beta1/namespaces/a/pods/web-1/m":   0,
		"/apis/custom.metrics.k8s.io/v1beta1/namespaces/a/pods/x/queue_x": 0,
	} {
		asked.Store(0)
		w := b.do(t, http.MethodGet, target, "Test-User: alice")
		if asked := asked.Load(); asked != want || (want == 0) != (w.Code == http.StatusForbidden) {
			t.Errorf("GET %s = %d %s after %d requests to backends, want %d requests, and 403 for none", target, w.Code, w.Body, asked, want)
		}
	}
}
