package drill

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
)

func TestUnsuitableTargetReportsTheCause(t *testing.T) {
	const unreachable = "http://127.0.0.1:1" // not a port that was free a moment ago: one of the servers below may get it
	posts := 0
	serve := func(apiServices bool, denied string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case r.Method == http.MethodGet && r.URL.Path == "/apis/apiregistration.k8s.io/v1" && apiServices:
				_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","resources":[]}`))
			case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
				var review authorizationv1.SelfSubjectAccessReview
				_ = json.NewDecoder(r.Body).Decode(&review)
				review.Status.Allowed = review.Spec.ResourceAttributes.Resource != denied
				_ = json.NewEncoder(w).Encode(review)
			case r.Method == http.MethodPost:
				posts++
				fallthrough
			default:
				http.NotFound(w, r)
			}
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	for name, c := range map[string]struct{ host, want string }{
		"nobody listens":     {unreachable, "connection refused"},
		"no aggregator":      {serve(false, ""), "for its APIServices"},
		"a right is missing": {serve(true, "apiservices"), "not allowed to create apiservices, delete apiservices"},
		"all is well":        {serve(true, ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := Target{Name: "a test", Config: &rest.Config{Host: c.host}}.Check(t.Context())
			switch {
			case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("Check error = %v, want %q", err, c.want)
			}
		})
	}
	if posts != 0 {
		t.Errorf("%d objects were created, want 0", posts)
	}
}
