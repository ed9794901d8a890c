package apiservice

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"

	"portico.dev/internal/logging"
	"portico.dev/internal/routetable"
	"portico.dev/internal/run"
)

const (
	statusWorkers = 4
	// writeTimeout limits a write to the API.
	writeTimeout = 10 * time.Second
	// messageInterval is the minimum time between two writes that change only the message of a condition.
	messageInterval = 30 * time.Second
	// repairDelay is the delay after which a status written by another client is reverted. Reverting it immediately would
	// make two disagreeing writers write as fast as they can (kubernetes/kubernetes#111890).
	repairDelay = time.Second
)

// statusWriter writes the folded conditions to the status of APIServices, on the leading replica. It writes only
// differences from the cache, so the event of its write causes no further write. If two replicas act as leader, the
// resourceVersion of each write lets only one of them succeed.
type statusWriter struct {
	client    Client
	lister    aggregatorlisters.APIServiceLister
	table     func() *routetable.Table
	replicas  *replicas
	owns      func(apiService string) bool // nil if this program writes all
	events    *eventRecorder
	log       *zap.Logger
	queue     workqueue.TypedRateLimitingInterface[string]
	debouncer debouncer

	mu sync.Mutex
	// messageWritten is the last time at which only the message of a condition was written, by APIService.
	messageWritten map[string]time.Time
}

func (s *statusWriter) prepare() {
	s.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, 5*time.Second),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "apiservice_status", Clock: run.QueueClock},
	)
}

func (s *statusWriter) run(ctx context.Context) {
	runWorkers(ctx, s.queue, statusWorkers, func(name string) {
		if err := s.sync(ctx, name); err != nil {
			if ctx.Err() == nil && !apierrors.IsConflict(err) {
				s.log.Log(logging.RetryLevel(s.queue.NumRequeues(name)), "failed to write the status of an APIService; retrying", zap.String("apiservice", name), zap.Error(err))
			}
			s.queue.AddRateLimited(name)
			return
		}
		s.queue.Forget(name)
	})
}

func (s *statusWriter) sync(ctx context.Context, name string) error {
	object, err := s.lister.Get(name)
	if apierrors.IsNotFound(err) {
		s.forget(name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get apiservice %s: %w", name, err)
	}
	route, ok := s.table().Lookup(groupVersionOf(object))
	if !ok || !madeFrom(route, object) || route.Condition.Reason == routetable.ReasonNotChecked {
		return nil // the next table enqueues the name again
	}
	// A replica that does not lead computes the conditions too, because it needs the start of a debounce if it becomes the
	// leader.
	ours := s.desiredConditions(name, route, object.Status.Conditions)
	if !s.replicas.leads() {
		return nil
	}
	if !ownsStatus(s.owns, name) {
		s.queue.AddAfter(name, ownerInterval)
		return nil
	}
	changed := object.DeepCopy()
	changed.Status.Conditions = mergeConditions(object.Status.Conditions, ours)
	if equality.Semantic.DeepEqual(object.Status, changed.Status) {
		return nil
	}
	if wait := s.messageDelay(object, changed); wait > 0 {
		s.queue.AddAfter(name, wait)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err = s.client.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		// After a conflict the cache is behind. On the retry it has caught up, or its event enqueues the name again.
		return fmt.Errorf("update status of apiservice %s: %w", name, err)
	}
	s.events.record(object, changed)
	return nil
}

// desiredConditions returns the folded conditions, debounced. A delayed condition enqueues the name again.
func (s *statusWriter) desiredConditions(name string, route *routetable.Route, stored []apiregistrationv1.APIServiceCondition) []apiregistrationv1.APIServiceCondition {
	now := metav1.Now()
	ours := s.replicas.conditions(route, stored, now)
	if s.replicas.size() == 1 || route.Local {
		s.debouncer.forget(name)
		return ours
	}
	ours, wait := s.debouncer.debounce(name, stored, ours, now.Time)
	if wait > 0 {
		s.queue.AddAfter(name, wait)
	}
	return ours
}

// madeFrom reports whether a route was made from this object with this Service.
func madeFrom(r *routetable.Route, object *apiregistrationv1.APIService) bool {
	return r.UID == object.UID && r.Name == object.Name && equality.Semantic.DeepEqual(r.Service, object.Spec.Service)
}

// messageDelay returns how long a change of messages alone must wait. It returns 0 if no wait is needed or other fields
// changed.
func (s *statusWriter) messageDelay(before, after *apiregistrationv1.APIService) time.Duration {
	if !sameExceptMessages(before.Status.Conditions, after.Status.Conditions) {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if wait := messageInterval - now.Sub(s.messageWritten[after.Name]); wait > 0 {
		return wait
	}
	s.messageWritten[after.Name] = now
	return 0
}

func (s *statusWriter) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.messageWritten, name)
	s.debouncer.forget(name)
}

func sameExceptMessages(a, b []apiregistrationv1.APIServiceCondition) bool {
	return slices.EqualFunc(a, b, func(x, y apiregistrationv1.APIServiceCondition) bool {
		return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason
	})
}

// mergeConditions merges ours into the stored conditions. A condition with an unchanged status keeps its
// lastTransitionTime. Conditions set by other writers stay. Transient conditions that no longer hold are removed.
func mergeConditions(stored, ours []apiregistrationv1.APIServiceCondition) []apiregistrationv1.APIServiceCondition {
	var out []apiregistrationv1.APIServiceCondition
	for _, old := range stored {
		i := slices.IndexFunc(ours, func(c apiregistrationv1.APIServiceCondition) bool { return c.Type == old.Type })
		switch {
		case i >= 0:
			c := ours[i]
			if c.Status == old.Status && !old.LastTransitionTime.IsZero() {
				c.LastTransitionTime = old.LastTransitionTime
			}
			out = append(out, c)
		case !slices.Contains(transientConditions, old.Type):
			out = append(out, old)
		}
	}
	for _, c := range ours {
		if !slices.ContainsFunc(out, func(o apiregistrationv1.APIServiceCondition) bool { return o.Type == c.Type }) {
			out = append(out, c)
		}
	}
	return out
}

// debounceTime is how long a condition must not be True before that is written, with several replicas. Replicas detect an
// event at different times, and each may be wrong for a moment.
const debounceTime = 2 * time.Second

// debouncer delays changes from True by debounceTime. Changes to True pass immediately.
type debouncer struct {
	mu sync.Mutex
	// falseSince is the time since which a condition that is stored as True should have a different status.
	falseSince map[debounceKey]time.Time
}

type debounceKey struct {
	apiService string
	condition  apiregistrationv1.APIServiceConditionType
}

// debounce returns the conditions that may be written now: the wanted ones, or the stored ones if a change is delayed. wait
// is the time until the next check, 0 if nothing is delayed.
func (d *debouncer) debounce(name string, stored, wanted []apiregistrationv1.APIServiceCondition, now time.Time) (debounced []apiregistrationv1.APIServiceCondition, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.falseSince == nil {
		d.falseSince = make(map[debounceKey]time.Time)
	}
	for _, c := range wanted {
		if c.Type == apiregistrationv1.Available || c.Type == AvailableOnAllReplicas {
			var left time.Duration
			if c, left = d.debounceOne(debounceKey{name, c.Type}, stored, c, now); left > 0 && (wait == 0 || left < wait) {
				wait = left
			}
		}
		debounced = append(debounced, c)
	}
	return debounced, wait
}

// debounceOne implements debounce for one condition.
func (d *debouncer) debounceOne(key debounceKey, stored []apiregistrationv1.APIServiceCondition, wanted apiregistrationv1.APIServiceCondition, now time.Time) (apiregistrationv1.APIServiceCondition, time.Duration) {
	current, _ := findCondition(stored, wanted.Type)
	if wanted.Status == apiregistrationv1.ConditionTrue || current.Status != apiregistrationv1.ConditionTrue {
		delete(d.falseSince, key)
		return wanted, 0
	}
	since, pending := d.falseSince[key]
	if !pending {
		since = now
		d.falseSince[key] = now
	}
	if left := debounceTime - now.Sub(since); left > 0 {
		return current, left
	}
	return wanted, 0
}

func (d *debouncer) forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.falseSince, func(k debounceKey, _ time.Time) bool { return k.apiService == name })
}

// runWorkers handles a queue's items with n workers until ctx ends, then shuts the queue down and waits for the workers.
func runWorkers[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], n int, handle func(T)) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for {
				item, shutdown := queue.Get()
				if shutdown {
					return
				}
				if ctx.Err() == nil {
					handle(item)
				}
				queue.Done(item)
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	wg.Wait()
}
