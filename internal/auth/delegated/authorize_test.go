package delegated

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"portico.dev/internal/auth/accessreview"
	"portico.dev/internal/auth/authtest"
)

func TestAuthorizeRequest(t *testing.T) {
	f := openFrontDoor(t, newAuthorities(t).published())
	f.access = func(spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
		switch spec.User {
		case "alice":
			return authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "because"}
		case "both":
			return authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}
		case "denied":
			return authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "never"}
		}
		return authorizationv1.SubjectAccessReviewStatus{Reason: "no rule"}
	}
	d := start(t, f).d
	nodes := &apirequest.RequestInfo{IsResourceRequest: true, Verb: "list", APIGroup: "metrics.k8s.io", APIVersion: "v1", Resource: "nodes"}
	path := func(p string) *apirequest.RequestInfo { return &apirequest.RequestInfo{Verb: "get", Path: p} }
	tests := []struct {
		name    string
		user    *user.DefaultInfo
		info    *apirequest.RequestInfo
		allowed bool
		reason  string
		wantErr bool
		asks    bool
	}{
		{name: "allowed", user: &user.DefaultInfo{Name: "alice"}, info: nodes, allowed: true, reason: "because", asks: true},
		{name: "no opinion is no", user: &user.DefaultInfo{Name: "bob"}, info: nodes, reason: "no rule", asks: true},
		{name: "denied", user: &user.DefaultInfo{Name: "denied"}, info: nodes, reason: "never", asks: true},
		{name: "allowed and denied", user: &user.DefaultInfo{Name: "both"}, info: nodes, wantErr: true, asks: true},
		{name: "system:masters is not asked about", user: &user.DefaultInfo{Name: "root", Groups: []string{"system:masters"}}, info: nodes, allowed: true},
		{name: "system:masters by name is", user: &user.DefaultInfo{Name: "system:masters"}, info: nodes, reason: "no rule", asks: true},
		{name: "health is not asked about", user: &user.DefaultInfo{Name: "system:anonymous"}, info: path("/livez"), allowed: true},
		{name: "a path below health is", user: &user.DefaultInfo{Name: "system:anonymous"}, info: path("/livez/x"), reason: "no rule", asks: true},
		{name: "metrics is", user: &user.DefaultInfo{Name: "system:anonymous"}, info: path("/metrics"), reason: "no rule", asks: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := f.count(accessreview.Path)
			for range 3 {
				allowed, reason, err := d.Authorize(t.Context(), tt.user, tt.info)
				if allowed != tt.allowed || reason != tt.reason || (err != nil) != tt.wantErr {
					t.Fatalf("Authorize() = %t, %q, %v, want %t, %q, error = %t", allowed, reason, err, tt.allowed, tt.reason, tt.wantErr)
				}
			}
			asked := f.count(accessreview.Path) - before
			want := map[bool]int{true: 1, false: 0}[tt.asks]
			if tt.wantErr {
				want = 3 // errors are not cached
			}
			if asked != want {
				t.Fatalf("%d access reviews for three requests, want %d", asked, want)
			}
		})
	}
	t.Run("a request without user or meaning", func(t *testing.T) {
		for _, err := range []error{second(d.Authorize(t.Context(), nil, nodes)), second(d.Authorize(t.Context(), &user.DefaultInfo{}, nil))} {
			if err == nil {
				t.Error("Authorize without a user or an info returned no error, want an error")
			}
		}
	})
}

func second(_ bool, _ string, err error) error { return err }

func TestConcurrentEqualRequestsShareOneAccessReview(t *testing.T) {
	f := openFrontDoor(t, newAuthorities(t).published())
	release := make(chan struct{})
	f.access = func(authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
		<-release
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true}
	}
	d := start(t, f).d
	info := &apirequest.RequestInfo{IsResourceRequest: true, Verb: "get", Resource: "foos"}
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if ok, _, err := d.Authorize(t.Context(), &user.DefaultInfo{Name: "alice"}, info); !ok {
				t.Errorf("Authorize() = %t, %v, want true", ok, err)
			}
		})
	}
	eventually(t, "the question arrives", func() bool { return f.count(accessreview.Path) > 0 })
	close(release)
	group.Wait()
	if n := f.count(accessreview.Path); n != 1 {
		t.Fatalf("%d access reviews for concurrent equal requests, want 1", n)
	}
}

func TestFailedAccessReviewIsRetriedOnce(t *testing.T) {
	t.Parallel()
	info := &apirequest.RequestInfo{IsResourceRequest: true, Verb: "get", Resource: "foos"}
	tests := []struct {
		name     string
		codes    []int // one for each attempt; further attempts succeed
		wantErr  bool
		attempts int
	}{
		{"500 once", []int{500}, false, 2},
		{"429 once", []int{429}, false, 2},
		{"403 is an answer", []int{403, 403}, true, 1},
		{"307 is not followed", []int{307, 307}, true, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := openFrontDoor(t, newAuthorities(t).published())
			f.access = func(authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
				return authorizationv1.SubjectAccessReviewStatus{Allowed: true}
			}
			d := start(t, f).d
			codes := slices.Clone(tt.codes)
			f.set(func() {
				f.refuse = func(r *http.Request) int {
					if r.URL.Path != accessreview.Path || len(codes) == 0 {
						return 0
					}
					code := codes[0]
					codes = codes[1:]
					return code
				}
			})
			allowed, _, err := d.Authorize(t.Context(), &user.DefaultInfo{Name: "alice"}, info)
			if (err != nil) != tt.wantErr || allowed == tt.wantErr {
				t.Fatalf("Authorize() = %t, %v, want an error = %t", allowed, err, tt.wantErr)
			}
			if n := f.count(accessreview.Path); n != tt.attempts {
				t.Fatalf("%d attempts of the access review, want %d", n, tt.attempts)
			}
		})
	}
}

func TestUnboundedAccessReviewResponseIsRejected(t *testing.T) {
	endless := authtest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"kind":"SubjectAccessReview","status":{"allowed":true,"reason":"`))
		for chunk := bytes.Repeat([]byte("x"), 64<<10); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	f, err := newAPIClient(&rest.Config{Host: endless.URL, TLSClientConfig: rest.TLSClientConfig{CAData: endless.RootPEM}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.client.Close)
	var reply authorizationv1.SubjectAccessReview
	err = f.call(t.Context(), http.MethodPost, accessreview.Path, nil, reply, &reply)
	if err == nil || !strings.Contains(err.Error(), "larger than") || reply.Status.Allowed {
		t.Fatalf("A27: endless response error = %v, allowed %t, want the error larger than, not allowed", err, reply.Status.Allowed)
	}
}
