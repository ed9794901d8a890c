package apiclient_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/clients/apiclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dial(t *testing.T, h http.HandlerFunc) *apiclient.Client {
	t.Helper()
	s := authtest.Serve(t, h)
	c, err := apiclient.New(&rest.Config{Host: s.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: s.RootPEM}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestRequestAndResponse(t *testing.T) {
	c := dial(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, `{"said":%q}`, fmt.Sprint(r.Method, " ", r.URL, " ", r.Header.Get("Authorization"), " ", string(body)))
	})
	var out struct{ Said string }
	if err := c.Get(t.Context(), "/api/v1/pods", map[string][]string{"labelSelector": {"a=b"}}, "", &out); err != nil || out.Said != "GET /api/v1/pods?labelSelector=a%3Db Bearer secret " {
		t.Errorf("request of Get = %q, %v; want the path, the query and the token", out.Said, err)
	}
	if err := c.Create(t.Context(), "/x", map[string]int{"a": 1}, &out); err != nil || out.Said != `POST /x Bearer secret {"a":1}` {
		t.Errorf("request of Create = %q, %v; want the path, the token and the body", out.Said, err)
	}
	uid := types.UID("u")
	if err := c.Delete(t.Context(), "/x/y", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
		t.Error(err)
	}
}

func TestRejectedRequestNamesServerIdentity(t *testing.T) {
	for _, c := range []struct {
		situation string
		code      int
		body      string
		reason    metav1.StatusReason
		want      string
	}{
		{"a Status", 403, `{"kind":"Status","code":403,"reason":"Forbidden","message":"pods is forbidden"}`, metav1.StatusReasonForbidden,
			"GET /api/v1/pods: the front door answered 403: pods is forbidden; the extension server's own identity lacks this right"},
		{"no credentials", 401, `{"kind":"Status","code":401,"reason":"Unauthorized","message":"Unauthorized"}`, metav1.StatusReasonUnauthorized, "does not accept the credentials"},
		{"a page", 502, "<html>bad gateway</html>", "", `answered 502: "<html>bad gateway</html>"`},
		{"a redirect, which would take the token elsewhere", 307, "", "", "answered 307"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			client := dial(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "https://elsewhere.example/")
				w.WriteHeader(c.code)
				fmt.Fprint(w, c.body)
			})
			err := client.Get(t.Context(), "/api/v1/pods", nil, "", nil)
			if err == nil || !strings.Contains(err.Error(), c.want) || c.reason != "" && !apiclient.HasReason(err, c.reason) {
				t.Errorf("Get with the status %d: error = %v, want %q", c.code, err, c.want)
			}
		})
	}
}

func TestInvalidResponseReturnsError(t *testing.T) {
	c := dial(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{") })
	var out any
	if err := c.Get(t.Context(), "/x", nil, "", &out); err == nil || !strings.Contains(err.Error(), "decode answer") {
		t.Errorf("Get of invalid JSON: error = %v, want \"decode answer\"", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Get(ctx, "/x", nil, "", &out); err == nil {
		t.Error("Get with a cancelled context returned no error, want one")
	}
	if _, err := apiclient.New(nil); err == nil || !strings.Contains(err.Error(), "kubeconfig is required") {
		t.Errorf("New without a configuration: error = %v, want one that requires a kubeconfig", err)
	}
}
