package routing

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/routes/v1alpha1"
)

// Defaults of APIRouteRule.Rollback.
const (
	DefaultMinRequests      int32 = 20
	DefaultRollbackInterval       = time.Minute
)

// rateBuckets is the number of parts of an ErrorRate's interval. Counted requests may be up to one part older or
// younger than the interval.
const rateBuckets = 10

// ErrorRate counts the results of the requests for a backend, over a sliding interval. It is safe for concurrent use,
// and a successful request costs one atomic operation. A nil ErrorRate does not count.
type ErrorRate struct {
	// Percent, MinRequests and Interval are the rule's.
	Percent, MinRequests int
	Interval             time.Duration

	over    atomic.Bool
	buckets [rateBuckets]atomic.Uint64
}

// A bucket is one word with three numbers: its part of the time, its requests, and the failed ones. Full counters
// stay full.
const (
	countBits = 18
	countMask = 1<<countBits - 1
	epochMask = 1<<(64-2*countBits) - 1
)

func newErrorRate(from *v1alpha1.Rollback) *ErrorRate {
	e := &ErrorRate{Percent: int(from.ErrorPercent), MinRequests: int(DefaultMinRequests), Interval: DefaultRollbackInterval}
	if from.MinRequests != nil {
		e.MinRequests = int(*from.MinRequests)
	}
	if from.Interval != nil {
		e.Interval = from.Interval.Duration
	}
	return e
}

// Errors is the number of failed requests among the requests of an interval.
type Errors struct {
	Failed, Requests int
	Interval         time.Duration
}

// Count counts a request that ended now. exceeded is true for the request that exceeds the limit. From then on the
// backend is not chosen any more.
func (e *ErrorRate) Count(now time.Time, failed bool) (found Errors, exceeded bool) {
	if e == nil {
		return Errors{}, false
	}
	epoch := e.epoch(now)
	e.add(epoch, failed)
	if !failed {
		return Errors{}, false
	}
	found = e.sum(epoch)
	exceeded = found.Requests >= e.MinRequests && 100*found.Failed >= e.Percent*found.Requests && e.over.CompareAndSwap(false, true)
	return found, exceeded
}

func (e *ErrorRate) epoch(now time.Time) uint64 {
	return uint64(now.UnixNano()/int64(e.Interval/rateBuckets)) & epochMask
}

func (e *ErrorRate) add(epoch uint64, failed bool) {
	b := &e.buckets[epoch%rateBuckets]
	for {
		was := b.Load()
		is := was
		if was>>(2*countBits) != epoch {
			is = epoch << (2 * countBits)
		}
		if is>>countBits&countMask < countMask {
			is += 1 << countBits
			if failed {
				is++
			}
		}
		if b.CompareAndSwap(was, is) {
			return
		}
	}
}

func (e *ErrorRate) sum(epoch uint64) Errors {
	found := Errors{Interval: e.Interval}
	for i := range e.buckets {
		b := e.buckets[i].Load()
		if age := (epoch - b>>(2*countBits)) & epochMask; age < rateBuckets {
			found.Requests += int(b >> countBits & countMask)
			found.Failed += int(b & countMask)
		}
	}
	return found
}

func (e *ErrorRate) exceeded() bool { return e != nil && e.over.Load() }

// RolledBack returns the backends with requests that go to the first backend of their rule, according to the status
// of an APIRoute: names of rules and backends, or an empty string. The status of an earlier spec does not count.
func RolledBack(o *v1alpha1.APIRoute) string {
	var all []string
	for i := range o.Status.Rules {
		rule := o.Status.Rules[i].Name
		for _, backend := range rolledBackIn(o, rule) {
			all = append(all, rule+"/"+backend)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func rolledBackIn(o *v1alpha1.APIRoute, rule string) []string {
	for i := range o.Status.Rules {
		if s := &o.Status.Rules[i]; s.Name == rule {
			if RollbackOf(o, s) != nil {
				return s.RolledBack
			}
		}
	}
	return nil
}

// RollbackOf returns the condition RolledBack of a rule of an APIRoute, or nil if it has none for the current spec.
func RollbackOf(o *v1alpha1.APIRoute, s *v1alpha1.RuleStatus) *metav1.Condition {
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionRolledBack)
	if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != o.Generation {
		return nil
	}
	return c
}
