package gateway

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientdiscovery "k8s.io/client-go/discovery"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/discovery"
	"portico.dev/internal/request"
	"portico.dev/internal/routetable"
)

func TestG1RequestsWithoutFrontProxyAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		kind  string
		a     authorizer.AttributesRecord
		allow bool
	}{
		"a resource, by the front proxy":       {authn.KindFrontProxy, authorizer.AttributesRecord{ResourceRequest: true, Verb: "list", Resource: "nodes"}, true},
		"a resource, by anybody else":          {authn.KindCertificate, authorizer.AttributesRecord{ResourceRequest: true, Verb: "list", Resource: "nodes"}, false},
		"a resource, without credentials":      {"", authorizer.AttributesRecord{ResourceRequest: true, Verb: "list", Resource: "nodes"}, false},
		"discovery, by the front proxy":        {authn.KindFrontProxy, authorizer.AttributesRecord{Verb: "get", Path: "/apis/a/v1"}, true},
		"OpenAPI, by the front proxy":          {authn.KindFrontProxy, authorizer.AttributesRecord{Verb: "get", Path: "/openapi/v2"}, true},
		"metrics, by the front proxy":          {authn.KindFrontProxy, authorizer.AttributesRecord{Verb: "get", Path: "/metrics"}, false},
		"a path that only begins like one":     {authn.KindFrontProxy, authorizer.AttributesRecord{Verb: "get", Path: "/apisx"}, false},
		"impersonation, by the front proxy":    {authn.KindFrontProxy, authorizer.AttributesRecord{ResourceRequest: true, Verb: "impersonate", Resource: "users", Name: "root"}, false},
		"constrained impersonation":            {authn.KindFrontProxy, authorizer.AttributesRecord{ResourceRequest: true, Verb: "impersonate:user-info", Resource: "users"}, false},
		"health, by anybody":                   {"", authorizer.AttributesRecord{Verb: "get", Path: "/readyz"}, true},
		"a single check of health, by anybody": {"", authorizer.AttributesRecord{Verb: "get", Path: "/readyz/keys"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tt.a.User = &user.DefaultInfo{Name: "alice"}
			ctx := &request.Context{Context: t.Context()}
			request.NoteCredential(ctx, tt.kind)
			decision, reason, err := passed{}.Authorize(ctx, tt.a)
			if err != nil || (decision == authorizer.DecisionAllow) != tt.allow || !tt.allow && decision != authorizer.DecisionDeny {
				t.Errorf("Authorize = %v, %q, %v; want allowed %t", decision, reason, err, tt.allow)
			}
		})
	}
}

func TestHealthNeedsNoCredentials(t *testing.T) {
	refused := errors.New("refused")
	f := frontProxies{func(*http.Request) (user.Info, error) { return nil, refused }}
	for path, want := range map[string]bool{"/readyz": true, "/livez": true, "/readyz/x": false, "/apis": false, "/": false} {
		response, ok, err := f.AuthenticateRequest(httptest.NewRequest(http.MethodGet, path, nil))
		if ok != want || want != (err == nil) || ok && response.User.GetName() != user.Anonymous {
			t.Errorf("AuthenticateRequest of %s = %+v, %t, %v; want %t", path, response, ok, err, want)
		}
	}
}

func TestG9UntrustingServerIsReported(t *testing.T) {
	forbidden := func(who string) string {
		return `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"forbidden: User \"` + who + `\" cannot get path \"` + trustPath + `\"","reason":"Forbidden","code":403}`
	}
	for name, tt := range map[string]struct {
		code int
		body string
		want apiregistrationv1.ConditionStatus
	}{
		"it refuses whom we name":         {403, forbidden(trustUser), apiregistrationv1.ConditionTrue},
		"it takes us for anonymous":       {403, forbidden("system:anonymous"), apiregistrationv1.ConditionFalse},
		"it takes us for our certificate": {403, forbidden("portico-gateway.portico-gateway.svc"), apiregistrationv1.ConditionFalse},
		"it knows nobody":                 {401, `{"kind":"Status","message":"Unauthorized"}`, apiregistrationv1.ConditionFalse},
		"403 that says nothing":           {403, "no", apiregistrationv1.ConditionFalse},
		"it authorizes nothing":           {404, "404 page not found", apiregistrationv1.ConditionTrue},
		"it answers everything":           {200, "{}", apiregistrationv1.ConditionTrue},
		"it cannot ask who may do what":   {500, `{"kind":"Status","message":"could not ask"}`, apiregistrationv1.ConditionUnknown},
		"it is about to start":            {503, "", apiregistrationv1.ConditionUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			if c := judgeTrust(tt.code, []byte(tt.body)); c.Status != tt.want || c.Reason == "" {
				t.Errorf("judgeTrust = %+v, want %s", c, tt.want)
			}
		})
	}
	if c := judgeTrust(403, []byte(forbidden(strings.Repeat("x", 10_000)))); len(c.Message) > 600 {
		t.Errorf("condition message has %d bytes, want at most 600", len(c.Message))
	}
}

// Controllers act on 404. A request of the API server that is a moment too early or too late never gets 404.
func TestUnservedPathsNeverReturn404(t *testing.T) {
	gv := schema.GroupVersion{Group: "adopted.example.com", Version: "v1"}
	route := &routetable.Route{GroupVersion: gv, Name: "v1.adopted.example.com", Condition: apiregistrationv1.APIServiceCondition{
		Status: apiregistrationv1.ConditionFalse, Reason: "FailedDiscoveryCheck", Message: "the server refuses connections",
	}}
	local := &routetable.Route{GroupVersion: schema.GroupVersion{Group: "apiregistration.k8s.io", Version: "v1"}, Name: "v1.apiregistration.k8s.io", Local: true}
	table := routetable.NewTable([]*routetable.Route{route, local}, true)
	h := &handler{
		routes: func() *routetable.Table { return table }, discovery: func() *discovery.Snapshot { return nil },
		router: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }),
	}
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/apis/released.example.com/v1":                       {503, "serves no APIService of released.example.com/v1"},
		"/apis/released.example.com/v1/namespaces/a/widgets":  {503, "serves no APIService of released.example.com/v1"},
		"/apis/apiregistration.k8s.io/v1/apiservices":         {503, "serves no APIService"},
		"/apis/adopted.example.com/v1":                        {503, "the server refuses connections"},
		"/apis/adopted.example.com/v1/":                       {503, "the server refuses connections"},
		"/apis":                                               {http.StatusTeapot, ""},
		"/apis/adopted.example.com/v1/namespaces/a/widgets/x": {http.StatusTeapot, ""},
		"/openapi/v3":                                         {http.StatusTeapot, ""},
		"/apis/adopted.example.com":                           {http.StatusTeapot, ""},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want.code || !strings.Contains(w.Body.String(), want.text) {
			t.Errorf("GET %s = %d %s, want %d %s", path, w.Code, w.Body, want.code, want.text)
		}
	}
	aggregated := httptest.NewRequest(http.MethodGet, "/apis", nil)
	aggregated.Header.Set("Accept", clientdiscovery.AcceptV2+",application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, aggregated)
	// 503 would have the API server take all group-versions of the gateway for unknown.
	if w.Code != http.StatusNotAcceptable {
		t.Errorf("aggregated discovery while a server is unknown = %d %s, want 406", w.Code, w.Body)
	}
}
