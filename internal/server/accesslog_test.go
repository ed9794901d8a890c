package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	epmetrics "k8s.io/apiserver/pkg/endpoints/metrics"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// The verbs in the metrics equal the verbs that kube-apiserver's own functions return.
func TestVerbsInMetricsMatchKubeAPIServer(t *testing.T) {
	factory := &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	const pods, pod = "/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods/b"
	for want, c := range map[string]struct{ method, path, contentType string }{
		"GET":     {http.MethodGet, pod, ""},
		"LIST":    {http.MethodGet, pods, ""},
		"WATCH":   {http.MethodGet, pods + "?watch=true", ""},
		"POST":    {http.MethodPost, pods, "application/json"},
		"PUT":     {http.MethodPut, pod + "/status", "application/json"},
		"PATCH":   {http.MethodPatch, pod, "application/merge-patch+json"},
		"APPLY":   {http.MethodPatch, pod, "application/apply-patch+yaml"},
		"DELETE":  {http.MethodDelete, pod, ""},
		"CONNECT": {http.MethodPost, pod + "/exec?command=id", ""},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Header.Set("Content-Type", c.contentType)
		info, err := factory.NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		if theirs := epmetrics.CleanVerb(epmetrics.CanonicalVerb(c.method, epmetrics.CleanScope(info)), r, info); theirs != want {
			t.Errorf("verb of kube-apiserver for %s %s = %s, want %s as in the test's table", c.method, c.path, theirs, want)
		}
		if got := reportedVerb(r, info); got != want {
			t.Errorf("reportedVerb(%s %s) = %s, want %s", c.method, c.path, got, want)
		}
	}
	// kube-apiserver's installer sets DELETECOLLECTION. Other paths are reported with their methods.
	for want, r := range map[string]*http.Request{
		"DELETECOLLECTION": httptest.NewRequest(http.MethodDelete, pods, nil), "POST": httptest.NewRequest(http.MethodPost, "/somewhere", nil),
	} {
		info, err := factory.NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := reportedVerb(r, info); got != want {
			t.Errorf("reportedVerb(%s %s) = %s, want %s", r.Method, r.URL.Path, got, want)
		}
	}
}
