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

	"portico.dev/internal/routetable"
)

const (
	statusWorkers = 4
	// writeTimeout bounds a write to the API.
	writeTimeout = 10 * time.Second
	// messageInterval is the least time between two writes that change only the message of a condition.
	messageInterval = 30 * time.Second
	// repairDelay is how long a status that somebody else wrote stands before it is reverted. Reverting it at once would
	// make two disagreeing writers write as fast as they can (kubernetes/kubernetes#111890).
	repairDelay = time.Second
)

// statusWriter writes the folded conditions to the status of APIServices, on the replica that leads. It writes only what
// differs from the cache; the event of its own write finds nothing to do. Should two replicas believe that they lead, the
// resourceVersion of each write lets only one of them through.
type statusWriter struct {
	client    Client
	lister    aggregatorlisters.APIServiceLister
	table     func() *routetable.Table
	replicas  *replicas
	owns      func(apiService string) bool // nil: this program writes all
	events    *eventRecorder
	log       *zap.Logger
	queue     workqueue.TypedRateLimitingInterface[string]
	debouncer debouncer

	mu sync.Mutex
	// messageWritten is when only the message of a condition was written last, by APIService.
	messageWritten map[string]time.Time
}

func (s *statusWriter) prepare() {
	s.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, 5*time.Second),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "apiservice_status"},
	)
}

func (s *statusWriter) run(ctx context.Context) {
	runWorkers(ctx, s.queue, statusWorkers, func(name string) {
		if err := s.sync(ctx, name); err != nil {
			if ctx.Err() == nil && !apierrors.IsConflict(err) {
				s.log.Warn("status of APIService is not written yet", zap.String("apiservice", name), zap.Error(err))
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
		return nil // the table is about to change, and brings the name back when it has
	}
	// A replica that does not lead goes as far as this too: it needs the start of a debounce when it takes over.
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
		// After a conflict the cache is behind; the retry finds it caught up, or its event brings the name back.
		return fmt.Errorf("update status of apiservice %s: %w", name, err)
	}
	s.events.record(object, changed)
	return nil
}

// desiredConditions returns the folded conditions, debounced. A condition that is held back queues the name again.
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

// messageDelay returns how long a change of messages alone has to wait, 0 when it need not or more changed.
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

// mergeConditions merges ours into the stored conditions. A condition whose status stays keeps its lastTransitionTime;
// conditions that others set stay; ours that no longer hold are removed.
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

// debounceTime is how long a condition must not be True before that is written, with several replicas. Replicas notice one
// event at different moments, and each may be wrong for a moment.
const debounceTime = 2 * time.Second

// debouncer holds changes from True back for debounceTime. Changes to True pass at once.
type debouncer struct {
	mu sync.Mutex
	// falseSince is since when a condition that is stored as True is to be something else.
	falseSince map[debounceKey]time.Time
}

type debounceKey struct {
	apiService string
	condition  apiregistrationv1.APIServiceConditionType
}

// debounce returns the conditions that may be written now: those wanted, except that stored ones stay where a change is
// held back. wait is when to ask again, 0 when nothing is held back.
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

// debounceOne is debounce for one condition.
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
