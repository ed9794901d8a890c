package routing

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/routes/v1alpha1"
)

const canary = `
metadata: {name: v1.example.com, uid: u, generation: 3}
spec:
  backends: [{name: stable}, {name: canary, service: {namespace: c, name: c}}, {name: third, service: {namespace: t, name: t}}]
  rules:
  - name: all
    backendRefs: [{name: stable, weight: 1}, {name: canary, weight: 1}, {name: third, weight: 1}]
    rollback: {errorPercent: 50, minRequests: 10, interval: 10s}
`

func TestErrorRateExceedsLimitAfterEnoughRequests(t *testing.T) {
	type step struct {
		after      time.Duration // since the previous step
		ok, failed int
	}
	for name, c := range map[string]struct {
		steps    []step
		exceeded bool
	}{
		"none fails":                               {[]step{{0, 1000, 0}}, false},
		"too few requests":                         {[]step{{0, 0, 9}}, false},
		"as many as count":                         {[]step{{0, 0, 10}}, true},
		"a few less than the share":                {[]step{{0, 51, 49}}, false},
		"the share":                                {[]step{{0, 50, 50}}, true},
		"spread over the interval":                 {[]step{{0, 0, 4}, {4 * time.Second, 0, 4}, {4 * time.Second, 0, 4}}, true},
		"spread over more than the interval":       {[]step{{0, 0, 4}, {6 * time.Second, 0, 4}, {6 * time.Second, 0, 4}}, false},
		"those that succeeded are too old":         {[]step{{0, 1000, 0}, {11 * time.Second, 0, 10}}, true},
		"those that succeeded are not too old":     {[]step{{0, 1000, 0}, {8 * time.Second, 0, 10}}, false},
		"the same part of another interval":        {[]step{{0, 0, 9}, {10 * time.Second, 0, 1}}, false},
		"a day later":                              {[]step{{0, 0, 9}, {24 * time.Hour, 0, 9}}, false},
		"more requests than a part has room for":   {[]step{{0, countMask + 10, 0}, {0, 0, 10}}, false},
		"a part that is full says what it had":     {[]step{{0, 0, countMask + 10}}, true},
		"many parts that are full do not overflow": {[]step{{0, countMask, 0}, {time.Second, countMask, 0}, {time.Second, 0, 10}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newErrorRate(&v1alpha1.Rollback{ErrorPercent: 50, MinRequests: new(int32(10)), Interval: &metav1.Duration{Duration: 10 * time.Second}})
			now, times := time.Unix(1_700_000_000, 0), 0
			for _, s := range c.steps {
				now = now.Add(s.after)
				for i := range s.ok + s.failed {
					if _, exceeded := e.Count(now, i >= s.ok); exceeded {
						times++
					}
				}
			}
			if (times == 1) != c.exceeded || times > 1 || e.exceeded() != c.exceeded {
				t.Errorf("exceeded %d times, exceeded() = %v, want %v, and at most once", times, e.exceeded(), c.exceeded)
			}
		})
	}
}

func TestErrorRateCountsConcurrentRequests(t *testing.T) {
	e := newErrorRate(&v1alpha1.Rollback{ErrorPercent: 100, MinRequests: new(int32(10_000)), Interval: &metav1.Duration{Duration: time.Hour}})
	now := time.Unix(1_700_000_000, 0)
	var times, requests atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1250 {
				if found, exceeded := e.Count(now, true); exceeded {
					times.Add(1)
					requests.Store(int64(found.Requests))
				}
			}
		})
	}
	wg.Wait()
	if times.Load() != 1 || requests.Load() != 10_000 {
		t.Errorf("exceeded %d times, with %d requests, want once with 10000", times.Load(), requests.Load())
	}
}

// backendsOf returns the number of users of each backend, of 300 users.
func backendsOf(t *testing.T, r *Route) map[string]int {
	t.Helper()
	got := map[string]int{}
	for i := range 300 {
		got[r.Backends[r.Choose(ask(t, http.MethodGet, "/apis/example.com/v1/widgets", fmt.Sprint("user-", i), nil), nil)[0].Backend].Name]++
	}
	return got
}

func TestRolledBackBackendIsNotChosen(t *testing.T) {
	r := compile(t, canary)
	before := backendsOf(t, r)
	if before["stable"] == 0 || before["canary"] == 0 || before["third"] == 0 {
		t.Fatalf("users of each backend = %v, want some for each", before)
	}
	now := time.Unix(1_700_000_000, 0)
	for i := 0; ; i++ {
		c := r.Choose(ask(t, http.MethodGet, "/apis/example.com/v1/widgets", fmt.Sprint("user-", i), nil), nil)[0]
		switch name := r.Backends[c.Backend].Name; {
		case name == "stable" && c.ErrorRate != nil, name != "stable" && c.ErrorRate == nil:
			t.Fatalf("error rate of the backend %s = %v, want a rate for all backends except stable", name, c.ErrorRate)
		case name != "canary":
			continue
		}
		if found, exceeded := c.ErrorRate.Count(now, true); exceeded {
			if found != (Errors{10, 10, 10 * time.Second}) {
				t.Errorf("Count = %+v, want 10 errors of 10 requests in 10s", found)
			}
			break
		}
	}
	if after := backendsOf(t, r); after["canary"] != 0 || after["third"] != before["third"] || after["stable"] != before["stable"]+before["canary"] {
		t.Errorf("users of each backend = %v, want those of canary at stable, before: %v", after, before)
	}
}

// The status applies only to the generation of the spec that it observed.
func TestStatusAppliesRollbackOfItsGeneration(t *testing.T) {
	o := decode(t, canary)
	condition := metav1.Condition{Type: v1alpha1.ConditionRolledBack, Status: metav1.ConditionTrue, ObservedGeneration: 3}
	o.Status.Rules = []v1alpha1.RuleStatus{{Name: "all", Conditions: []metav1.Condition{condition}, RolledBack: []string{"canary"}}}
	for name, c := range map[string]struct {
		change func(c *metav1.Condition)
		rolled bool
	}{
		"of this spec":      {func(*metav1.Condition) {}, true},
		"of the one before": {func(c *metav1.Condition) { c.ObservedGeneration = 2 }, false},
		"not true":          {func(c *metav1.Condition) { c.Status = metav1.ConditionFalse }, false},
		"another condition": {func(c *metav1.Condition) { c.Type = v1alpha1.ConditionAvailable }, false},
	} {
		changed := o.DeepCopy()
		c.change(&changed.Status.Rules[0].Conditions[0])
		r, err := Compile(changed, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := backendsOf(t, r); (got["canary"] == 0) != c.rolled || got["third"] == 0 {
			t.Errorf("%s: users of each backend = %v, want canary rolled back: %v", name, got, c.rolled)
		}
		if (r.RolledBack == "all/canary") != c.rolled || (r.RolledBack == "") == c.rolled || r.InUse()[1] == c.rolled {
			t.Errorf("%s: RolledBack = %q, InUse() = %v, want all/canary rolled back: %v", name, r.RolledBack, r.InUse(), c.rolled)
		}
		if got := len(r.Rules()[0].Backends); (got == 2) != c.rolled {
			t.Errorf("%s: the rule has %d backends, want 2 only after a rollback: %v", name, got, c.rolled)
		}
	}
}

func BenchmarkErrorRate(b *testing.B) {
	e := newErrorRate(&v1alpha1.Rollback{ErrorPercent: 50})
	now := time.Unix(1_700_000_000, 0)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			e.Count(now, false)
		}
	})
}
