package limits

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"portico.dev/internal/filters"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
)

const pods = "/api/v1/namespaces/a/pods"

// by returns a request of a user, "METHOD TARGET", with further headers.
func by(t *testing.T, u *user.DefaultInfo, line string, headers ...string) *filters.Request {
	t.Helper()
	method, target, _ := strings.Cut(line, " ")
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	info, err := request.NewResolver().Info(r)
	if err != nil {
		t.Fatal(err)
	}
	return &filters.Request{Request: r, Info: info, User: u, UserName: u.Name}
}

var (
	jane = &user.DefaultInfo{Name: "jane", Groups: []string{"dev"}}
	joe  = &user.DefaultInfo{Name: "joe", Groups: []string{"ops", "dev"}}
)

func clusterWith(m *v1alpha1.ClusterMaintenance, rates ...v1alpha1.RateLimit) *v1alpha1.Cluster {
	return &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "berlin"},
		Spec:       v1alpha1.ClusterSpec{Maintenance: m, Limits: v1alpha1.ClusterLimits{Rates: rates}},
	}
}

// admitted returns how many of n equal requests are admitted.
func admitted(t *testing.T, l *Limits, n int, u *user.DefaultInfo, line string) int {
	t.Helper()
	all := 0
	for range n {
		if l.Check(by(t, u, line)) == nil {
			all++
		}
	}
	return all
}

func expectAdmitted(t *testing.T, l *Limits, n, want int, u *user.DefaultInfo, line string) {
	t.Helper()
	if got := admitted(t, l, n, u, line); got != want {
		t.Errorf("%d of %d requests of %s for %s are admitted, want %d", got, n, u.Name, line, want)
	}
}

func TestRatesLimitEachUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(clusterWith(nil, v1alpha1.RateLimit{Name: "lists", RequestsPerSecond: 2, Burst: ptr.To[int32](5), Verbs: []string{"list"}}), nil, nil)
		expectAdmitted(t, l, 10, 5, jane, "GET "+pods)
		expectAdmitted(t, l, 10, 5, joe, "GET "+pods)
		expectAdmitted(t, l, 10, 10, jane, "GET "+pods+"/p")
		time.Sleep(time.Second)
		expectAdmitted(t, l, 10, 2, jane, "GET "+pods)
		time.Sleep(time.Minute)
		expectAdmitted(t, l, 10, 5, jane, "GET "+pods)
	})
}

func TestRateRefusalNamesLimitAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(clusterWith(nil, v1alpha1.RateLimit{Name: "lists", RequestsPerSecond: 1}), nil, nil)
		expectAdmitted(t, l, 1, 1, jane, "GET "+pods)
		time.Sleep(999 * time.Millisecond)
		expectStatus(t, l.Check(by(t, jane, "GET "+pods)), http.StatusTooManyRequests, 1,
			`you make more requests to cluster berlin than its limit "lists" allows, which is 1 per second for each user: try again in a second`)
		time.Sleep(time.Millisecond)
		expectAdmitted(t, l, 1, 1, jane, "GET "+pods)
	})
}

func expectStatus(t *testing.T, err error, code, retryAfter int32, message string) {
	t.Helper()
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Code != code || status.ErrStatus.Message != message || status.ErrStatus.Details.RetryAfterSeconds != retryAfter {
		t.Errorf("error = %#v, want status %d with Retry-After %d and the message %q", err, code, retryAfter, message)
	}
}

// A request that one limit refuses does not count for another limit.
func TestRefusedRequestTakesNothingFromOtherLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(clusterWith(nil, v1alpha1.RateLimit{Name: "all", RequestsPerSecond: 3},
			v1alpha1.RateLimit{Name: "lists", RequestsPerSecond: 1, Verbs: []string{"list"}}), nil, nil)
		expectAdmitted(t, l, 10, 1, jane, "GET "+pods)
		expectAdmitted(t, l, 10, 2, jane, "GET "+pods+"/p")
		expectAdmitted(t, l, 1, 0, jane, "GET "+pods)
	})
}

func TestConditionsOfRates(t *testing.T) {
	for name, c := range map[string]struct {
		rule             v1alpha1.RateLimit
		matches, matchNo []string // "USER METHOD TARGET"
	}{
		"no condition": {matches: []string{"jane GET " + pods, "joe GET /version"}},
		"users":        {v1alpha1.RateLimit{Users: []string{"jane", "jim"}}, []string{"jane GET " + pods}, []string{"joe GET " + pods}},
		"groups":       {v1alpha1.RateLimit{Groups: []string{"ops"}}, []string{"joe GET " + pods}, []string{"jane GET " + pods}},
		"verbs":        {v1alpha1.RateLimit{Verbs: []string{"watch"}}, []string{"jane GET " + pods + "?watch=true"}, []string{"jane GET " + pods}},
		"resources": {
			v1alpha1.RateLimit{Resources: []string{"pods", "pods/exec", "deployments.apps", "deployments.apps/scale"}},
			[]string{"jane GET " + pods, "jane POST " + pods + "/p/exec", "jane GET /apis/apps/v1/deployments", "jane GET /apis/apps/v1/namespaces/a/deployments/d/scale"},
			[]string{"jane GET " + pods + "/p/log", "jane GET /apis/example.com/v1/pods", "jane GET /apis/extensions/v1/deployments", "jane GET /version", "jane GET /pods"},
		},
		"namespaces": {v1alpha1.RateLimit{Namespaces: []string{"a"}}, []string{"jane GET " + pods}, []string{"jane GET /api/v1/namespaces/b/pods", "jane GET /api/v1/pods", "jane GET /api/v1/nodes"}},
		"several":    {v1alpha1.RateLimit{Groups: []string{"dev"}, Verbs: []string{"list"}}, []string{"jane GET " + pods}, []string{"jane GET " + pods + "/p"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.rule.Name, c.rule.RequestsPerSecond = "r", 1
			for want, lines := range map[bool][]string{true: c.matches, false: c.matchNo} {
				for _, line := range lines {
					name, line, _ := strings.Cut(line, " ")
					u := map[string]*user.DefaultInfo{"jane": jane, "joe": joe}[name]
					l := New(clusterWith(nil, c.rule), nil, nil)
					if got := l.rules[0].matches(by(t, u, line)); got != want {
						t.Errorf("limit matches %s of %s: %t, want %t", line, name, got, want)
					}
				}
			}
		})
	}
}

func TestUnchangedRatesKeepAllowances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := v1alpha1.RateLimit{Name: "reads", RequestsPerSecond: 2, Verbs: []string{"get"}}
		lists := v1alpha1.RateLimit{Name: "lists", RequestsPerSecond: 2, Verbs: []string{"list"}}
		first := New(clusterWith(nil, reads, lists), nil, nil)
		expectAdmitted(t, first, 2, 2, jane, "GET "+pods)
		expectAdmitted(t, first, 2, 2, jane, "GET "+pods+"/p")
		reads.RequestsPerSecond = 3
		second := New(clusterWith(&v1alpha1.ClusterMaintenance{Mode: v1alpha1.ReadOnly}, lists, reads), first, nil)
		expectAdmitted(t, second, 2, 0, jane, "GET "+pods)
		expectAdmitted(t, second, 4, 3, jane, "GET "+pods+"/p")
	})
}

func TestUsersOfRatesAreBounded(t *testing.T) {
	l := New(clusterWith(nil, v1alpha1.RateLimit{Name: "a", RequestsPerSecond: 1}), nil, nil)
	for i := range maxUsers + 10 {
		if err := l.Check(by(t, &user.DefaultInfo{Name: fmt.Sprint(i)}, "GET "+pods)); err != nil {
			t.Fatal(err)
		}
	}
	if got := l.rules[0].limiters.Len(); got != maxUsers {
		t.Errorf("the limit remembers %d users, want %d", got, maxUsers)
	}
}

func TestConcurrentRequestsGetExactAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(clusterWith(nil, v1alpha1.RateLimit{Name: "a", RequestsPerSecond: 50}, v1alpha1.RateLimit{Name: "b", RequestsPerSecond: 60}), nil, nil)
		for range 3 {
			var got atomic.Int32
			var running sync.WaitGroup
			for range 200 {
				running.Go(func() {
					if l.Check(by(t, jane, "GET "+pods)) == nil {
						got.Add(1)
					}
				})
			}
			running.Wait()
			if got.Load() != 50 {
				t.Errorf("%d of 200 requests are admitted, want 50", got.Load())
			}
			time.Sleep(time.Second)
		}
	})
}

func TestMaintenance(t *testing.T) {
	m := &v1alpha1.ClusterMaintenance{Mode: v1alpha1.ReadOnly, ExemptGroups: []string{"ops"}}
	readOnly := New(clusterWith(m), nil, nil)
	m = m.DeepCopy()
	m.Mode = v1alpha1.Closed
	closed := New(clusterWith(m), nil, nil)
	const review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	for _, c := range []struct {
		line    string
		headers []string
		allowed bool // in read-only mode
	}{
		{"GET " + pods, nil, true},
		{"HEAD " + pods + "/p", nil, true},
		{"OPTIONS " + pods, nil, true},
		{"GET " + pods + "?watch=true", nil, true},
		{"GET " + pods + "/p/log?follow=true", nil, true},
		{"GET /version", nil, true},
		{"POST " + pods, nil, false},
		{"POST " + pods + "?dryRun=All", nil, false},
		{"PUT " + pods + "/p", nil, false},
		{"PATCH " + pods + "/p", nil, false},
		{"DELETE " + pods + "/p", nil, false},
		{"DELETE " + pods, nil, false},
		{"POST " + pods + "/p/eviction", nil, false},
		{"POST " + pods + "/p/binding", nil, false},
		{"PATCH /apis/apps/v1/namespaces/a/deployments/d/scale", nil, false},
		{"POST /api/v1/namespaces/a/serviceaccounts/s/token", nil, false},
		{"POST /api/v1/watch/namespaces/a/pods", nil, false},
		{"POST /version", nil, false},
		{"CONNECT " + pods + "/p/exec", nil, false},
		{"POST " + pods + "/p/exec", nil, false},
		{"GET " + pods + "/p/exec", []string{"Connection", "Upgrade", "Upgrade", "websocket"}, false},
		{"GET " + pods + "/p/exec", []string{"Connection", "keep-alive, upgrade"}, false},
		{"POST " + review, nil, true},
		{"POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews", nil, true},
		{"POST /apis/authorization.k8s.io/v1/subjectaccessreviews", nil, true},
		{"POST /apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews", nil, true},
		{"POST /apis/authentication.k8s.io/v1/selfsubjectreviews", nil, true},
		{"POST /apis/authentication.k8s.io/v1/tokenreviews", nil, true},
		{"POST /apis/example.com/v1/tokenreviews", nil, false},
		{"POST " + review + "/a/status", nil, false},
		{"PUT " + review + "/a", nil, false},
	} {
		if err := readOnly.Check(by(t, jane, c.line, c.headers...)); (err == nil) != c.allowed {
			t.Errorf("%s with %q in read-only mode: error = %v, want allowed: %t", c.line, c.headers, err, c.allowed)
		}
		if err := closed.Check(by(t, jane, c.line, c.headers...)); err == nil {
			t.Errorf("%s with %q while closed is allowed, want an error", c.line, c.headers)
		}
		for _, l := range []*Limits{readOnly, closed} {
			if err := l.Check(by(t, joe, c.line, c.headers...)); err != nil {
				t.Errorf("%s of an exempt user in mode %s: error = %v, want none", c.line, l.maintenance.Mode, err)
			}
		}
	}
}

func TestMaintenanceMessages(t *testing.T) {
	m := &v1alpha1.ClusterMaintenance{Mode: v1alpha1.Closed}
	l := New(clusterWith(m), nil, nil)
	r := by(t, jane, "POST "+pods)
	expectStatus(t, l.Check(r), http.StatusServiceUnavailable, 1, "cluster berlin is closed for maintenance")
	m.Mode, m.Message = v1alpha1.ReadOnly, "an upgrade, until 18:00"
	expectStatus(t, l.Check(r), http.StatusServiceUnavailable, 1, "cluster berlin is in maintenance: it serves only reads: an upgrade, until 18:00")
	r.User = nil
	expectStatus(t, l.Check(r), http.StatusServiceUnavailable, 1, "cluster berlin is in maintenance: it serves only reads: an upgrade, until 18:00")
}

func TestRefusalsAreCounted(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := metrics.NewClusters(reg)
	c := clusterWith(&v1alpha1.ClusterMaintenance{Mode: v1alpha1.ReadOnly}, v1alpha1.RateLimit{Name: "a", RequestsPerSecond: 1})
	l := New(c, nil, m)
	for _, line := range []string{"POST " + pods, "POST " + pods, "GET " + pods, "GET " + pods} {
		_ = l.Check(by(t, jane, line)) // counted
	}
	want := `
# HELP portico_cluster_refused_requests_total Requests to a cluster behind the front door that were refused, by the Cluster and the reason: maintenance (of the cluster), or rate (of the user's requests).
# TYPE portico_cluster_refused_requests_total counter
portico_cluster_refused_requests_total{cluster="berlin",reason="maintenance"} 2
portico_cluster_refused_requests_total{cluster="berlin",reason="rate"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
