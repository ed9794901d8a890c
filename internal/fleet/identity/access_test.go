package identity

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
	"portico.dev/internal/fleet/v1alpha1"
)

// askedBy returns a request of a user, with further header lines.
func askedBy(u user.Info, header http.Header) *filters.Request {
	r := httptest.NewRequest(http.MethodGet, "/apis/g/v1/foos", nil)
	r.Header = header
	return &filters.Request{Request: r, User: u}
}

// TestAccessIsReviewedForTheUserThatTheClusterSees compares the users of reviews with those of requests.
func TestAccessIsReviewedForTheUserThatTheClusterSees(t *testing.T) {
	rules := Rules{UserPrefix: "front:", GroupPrefix: "front:"}
	for _, mode := range []v1alpha1.IdentityMode{v1alpha1.Impersonate, v1alpha1.FrontProxy} {
		f := newFront(t, mode, rules)
		access := NewAccess(f.own(mode), mode)
		if code := f.send(t, "Accept: application/json"); code != http.StatusTeapot {
			t.Fatalf("%s: status of a request = %d, want %d", mode, code, http.StatusTeapot)
		}
		seen, _ := f.taken()
		u, err := rules.InCluster(askedBy(f.user, nil))
		if err != nil || !sameUser(u, seen[0]) {
			t.Errorf("%s: InCluster() = %+v, %v, want %+v", mode, u, err, seen[0])
		}
		info := &apirequest.RequestInfo{IsResourceRequest: true, Verb: "list", APIGroup: "g", APIVersion: "v1", Resource: "foos", Namespace: "ns"}
		for range 2 {
			if allowed, reason, err := access.Authorize(t.Context(), u, info); !allowed || err != nil {
				t.Errorf("%s: Authorize() = %t, %q, %v, want true", mode, allowed, reason, err)
			}
		}
		info.Namespace = "other"
		if allowed, reason, err := access.Authorize(t.Context(), u, info); allowed || reason != "not in other" || err != nil {
			t.Errorf("%s: Authorize() in another namespace = %t, %q, %v, want false", mode, allowed, reason, err)
		}
		want := authorizationv1.SubjectAccessReviewSpec{User: "front:alice", UID: "u-1", Groups: seen[0].GetGroups(),
			Extra:              map[string]authorizationv1.ExtraValue{"Scopes/Key": {"read", "write"}},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Group: "g", Version: "v1", Resource: "foos", Namespace: "ns"}}
		if len(f.accesses) != 2 || !reflect.DeepEqual(f.accesses[0], want) {
			t.Errorf("%s: reviews = %+v, want 2, the first %+v", mode, f.accesses, want)
		}
	}
}

func TestUsersThatAreNotReviewed(t *testing.T) {
	token := "x"
	robot := &tokenUser{&user.DefaultInfo{Name: "system:serviceaccount:ns:robot"}, &token}
	if u, err := (Rules{}).InCluster(askedBy(robot, nil)); err != nil || u != robot.Info {
		t.Errorf("InCluster(robot) = %+v, %v, want the user without the token", u, err)
	}
	for name, r := range map[string]*filters.Request{
		"impersonation by a user of the cluster": askedBy(robot, http.Header{"Impersonate-Group": {"x"}}),
		"system user":                            askedBy(&user.DefaultInfo{Name: "system:admin"}, nil),
		"user that cannot be sent":               askedBy(&user.DefaultInfo{Name: "alice\n"}, nil),
	} {
		u, err := Rules{}.InCluster(r)
		if err == nil || !strings.HasPrefix(err.Error(), "the user is not sent to the cluster: ") {
			t.Errorf("%s: InCluster() = %+v, %v, want a 403", name, u, err)
		}
	}
}

// TestA68AccessReviewsAreBounded checks that a cluster that does not answer costs limited time and memory, and that nothing is allowed.
func TestA68AccessReviewsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := &reviews{respond: func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		}}
		access := NewAccess(cluster, v1alpha1.Impersonate)
		authorize := func(verb string) (bool, error) {
			allowed, _, err := access.Authorize(t.Context(), &user.DefaultInfo{Name: "alice"}, &apirequest.RequestInfo{Verb: verb, Path: "/apis"})
			return allowed, err
		}
		var refused atomic.Int32
		began := time.Now()
		for i := range 2 * maxReviews {
			go func() {
				if allowed, err := authorize(strings.Repeat("x", i)); !allowed && err != nil {
					refused.Add(1)
				}
			}()
		}
		synctest.Wait()
		for i := range 100 { // merged
			go func() { _, _ = authorize(strings.Repeat("x", i%2)) }()
		}
		time.Sleep(timeout)
		synctest.Wait()
		if got, sent := refused.Load(), cluster.count.Load(); got != 2*maxReviews || sent > maxReviews || sent < maxReviews/2 {
			t.Errorf("%d requests refused after %s, and %d reviews, want %d and at most %d", got, time.Since(began), sent, 2*maxReviews, maxReviews)
		}
		cluster.respond = func(*http.Request) (*http.Response, error) {
			return response(http.StatusForbidden, `{"kind":"Status","message":"no right"}`), nil
		}
		if allowed, err := authorize("get"); allowed || err == nil || !strings.Contains(err.Error(), "403: no right") {
			t.Errorf("Authorize with a refused review = %t, %v, want 403: no right", allowed, err)
		}
		cluster.respond = func(r *http.Request) (*http.Response, error) {
			var review authorizationv1.SubjectAccessReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				return nil, err
			}
			review.Status.Allowed = true
			body, err := json.Marshal(review)
			return response(http.StatusCreated, string(body)), err
		}
		if allowed, err := authorize("get"); !allowed || err != nil {
			t.Errorf("Authorize after the failures = %t, %v, want true", allowed, err)
		}
	})
}

// An API server that is killed does not respond to the reviews that it has received.
func TestReviewWithoutResponseIsRepeatedOnce(t *testing.T) {
	lost := errors.New("connection reset by peer")
	for name, c := range map[string]struct {
		code    int
		failed  []error // of the attempts
		sent    int32
		allowed bool
	}{
		"no attempt fails": {http.StatusCreated, []error{nil}, 1, true},
		"the first fails":  {http.StatusCreated, []error{lost, nil}, 2, true},
		"both fail":        {http.StatusCreated, []error{lost, lost}, 2, false},
		"refused":          {http.StatusServiceUnavailable, []error{nil}, 1, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			cluster := &reviews{}
			cluster.respond = func(*http.Request) (*http.Response, error) {
				if err := c.failed[cluster.count.Load()-1]; err != nil {
					return nil, err
				}
				return response(c.code, `{"status":{"allowed":true}}`), nil
			}
			allowed, _, err := NewAccess(cluster, v1alpha1.Impersonate).Authorize(t.Context(), &user.DefaultInfo{Name: "alice"}, &apirequest.RequestInfo{Verb: "get", Path: "/apis"})
			if sent := cluster.count.Load(); allowed != c.allowed || (err == nil) != c.allowed || sent != c.sent {
				t.Errorf("%s: Authorize() = %t, %v after %d reviews, want %t after %d", name, allowed, err, sent, c.allowed, c.sent)
			}
		})
	}
}
