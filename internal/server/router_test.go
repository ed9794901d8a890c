package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/user"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/metrics"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

func named(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
}

func TestRouterServesRequestByRouteState(t *testing.T) {
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	up := routetable.Route{
		GroupVersion: schema.GroupVersion{Group: "up.example.com", Version: "v1"}, Name: "v1.up.example.com",
		Backend: dispatchtest.Backend(t, set, "up", nil), Condition: dispatchtest.Condition(apiregistrationv1.ConditionTrue, "Passed", "all checks passed"),
	}
	down := routetable.Route{
		GroupVersion: schema.GroupVersion{Group: "down.example.com", Version: "v1"}, Name: "v1.down.example.com",
		Condition: dispatchtest.Condition(apiregistrationv1.ConditionFalse, "ServiceNotFound", `service/down in "ns" is not present`),
	}
	local := routetable.Route{
		GroupVersion: schema.GroupVersion{Version: "v1"}, Name: "v1.", Local: true,
		Condition: dispatchtest.Condition(apiregistrationv1.ConditionTrue, "Local", ""),
	}
	synced := routetable.NewTable([]*routetable.Route{&up, &down, &local}, true)
	var empty routetable.Table

	for name, c := range map[string]struct {
		table  *routetable.Table
		target string
		code   int
		body   string
	}{
		"a backend that is up":                     {synced, "/apis/up.example.com/v1/foos", 200, "up alice"},
		"discovery of that backend":                {synced, "/apis/up.example.com/v1", 200, "up alice"},
		"a local group":                            {synced, "/api/v1/pods", 200, "local"},
		"a local group that no APIService names":   {synced, "/apis/apiregistration.k8s.io/v1/apiservices", 200, "local"},
		"the same before routes are known":         {&empty, "/apis/apiregistration.k8s.io/v1/apiservices", 200, "local"},
		"discovery of everything":                  {synced, "/apis", 200, "discovery"},
		"discovery of one group":                   {synced, "/apis/up.example.com", 200, "discovery"},
		"discovery of the core group":              {synced, "/api", 200, "discovery"},
		"OpenAPI":                                  {synced, "/openapi/v3", 200, "openapi"},
		"something outside the API":                {synced, "/version", 200, `"major": "1"`},
		"a backend that is down names the guilty":  {synced, "/apis/down.example.com/v1/foos", 503, `APIService v1.down.example.com is unavailable (ServiceNotFound since 2026-11-20T10:00:00Z): service/down in \"ns\" is not present`},
		"its answer can be searched for as before": {synced, "/apis/down.example.com/v1/foos", 503, "the server is currently unable to handle the request"},
		"nobody serves it":                         {synced, "/apis/nobody.example.com/v1/foos", 404, "could not find the requested resource"},
		"nobody serves it, as far as is known":     {&empty, "/apis/nobody.example.com/v1/foos", 503, "before all known HTTP paths have been installed"},
		"a path that looks like one of the API":    {synced, "/apiserver", 404, "could not find the requested resource"},
		"the version with a slash":                 {synced, "/version/", 200, `"major": "1"`},
		"no check by its name":                     {synced, "/readyz/", 404, "could not find the requested resource"},
		"what is not served names no object":       {synced, "/apis/nobody.example.com/v1/foos/a", 404, `"details":{},"code":404`},
		"a path that is nothing":                   {synced, "/nothing", 404, "could not find the requested resource"},
	} {
		t.Run(name, func(t *testing.T) {
			router := routerOf(c.table)
			router.LocalGroupVersions = func() sets.Set[schema.GroupVersion] {
				return sets.New(schema.GroupVersion{Version: "v1"}, schema.GroupVersion{Group: "apiregistration.k8s.io", Version: "v1"})
			}
			router.Warning = func() string { return "of a while ago" }
			router.static = NewStatic(StaticConfig{
				Health: NewHealth(zap.NewNop()), Version: version.Info{Major: "1"}, Gatherer: prometheus.NewRegistry(),
				Aggregation: func() any { return nil },
			})
			h := NewInternalChain(&user.DefaultInfo{Name: "alice"}, metrics.NewRequests(prometheus.NewRegistry()), zap.NewNop(), router.build())
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, c.target, nil))
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.body) {
				t.Errorf("GET %s = %d %s, want %d %s", c.target, w.Code, w.Body, c.code, c.body)
			}
			// Only responses from a backend or a document have a warning.
			warned := map[string]string{"up alice": `299 - "of a while ago"`, "discovery": `299 - "of a while ago"`, "openapi": `299 - "of a while ago"`}[c.body]
			if got := w.Header().Get("Warning"); got != warned {
				t.Errorf("Warning of GET %s = %q, want %q", c.target, got, warned)
			}
			if c.code == 503 && c.table == &empty && w.Header().Get("Retry-After") != "5" {
				t.Errorf("Retry-After of GET %s = %q, want 5", c.target, w.Header().Get("Retry-After"))
			}
		})
	}
}
