package quotas

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"portico.dev/internal/run"
)

const (
	// DefaultQuotaSync is kube-controller-manager's --resource-quota-sync-period.
	DefaultQuotaSync = 5 * time.Minute
	// quotaInFlight is how long after its charge a write is taken to be on its way to storage. Admission charges before the
	// object is written: a count in between does not find it, and must not give its room away.
	quotaInFlight = time.Second
	// quotaGap is the least time between two counts of one quota, and quotaRest how many times as long as the last count
	// took that is at the least: what a namespace counts costs what is in it.
	quotaGap  = 250 * time.Millisecond
	quotaRest = 3
	// quotaConflicts is how often a count is written again because somebody was charged meanwhile, and quotaCatchUp how
	// long each time waits for that charge to be seen.
	quotaConflicts = 100
	quotaCatchUp   = time.Second
	quotaWorkers   = 5
)

// Quotas is what the status of quotas is made of.
type Quotas struct {
	// Quotas is shared with the rest of the server, which runs it.
	Quotas coreinformers.ResourceQuotaInformer
	// Measure says what a quota's namespace uses now. Beside an error is what could be measured all the same.
	Measure func(ctx context.Context, q *corev1.ResourceQuota) (corev1.ResourceList, error)
	// Kinds are what the limits of a quota are about, as far as it is served here.
	Kinds func(q *corev1.ResourceQuota) []schema.GroupVersionResource
	// Metadata follows those kinds. It must not reach extension servers.
	Metadata metadata.Interface
	// Changed returns a channel that is closed when Kinds may say something else. Take it before asking.
	Changed func() <-chan struct{}
	// Sync is how often every quota is counted anew. Default DefaultQuotaSync.
	Sync time.Duration
}

// quotaStatus keeps in each quota's status its limits, and what is used of them.
type quotaStatus struct {
	Quotas
	client   kubernetes.Interface
	election election
	log      *zap.Logger
	queue    workqueue.TypedRateLimitingInterface[types.NamespacedName]
	limits   chan struct{} // what is limited may have changed

	mu       sync.Mutex // guards observed
	observed map[types.NamespacedName]*observedQuota
}

func newQuotaStatus(cfg Config, log *zap.Logger) *quotaStatus {
	q := &quotaStatus{Quotas: cfg.Quotas, client: cfg.Client, election: cfg.Leads, log: log,
		limits: make(chan struct{}, 1), observed: map[types.NamespacedName]*observedQuota{}}
	if q.Sync <= 0 {
		q.Sync = DefaultQuotaSync
	}
	return q
}

// run blocks until ctx ends and what it has started has returned.
func (s *quotaStatus) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	s.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "quota-status"})
	var joined sync.WaitGroup
	defer joined.Wait()
	defer s.queue.ShutDown()
	defer cancel()
	informer := s.Quotas.Quotas.Informer()
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(q any) {
			s.relimit()
			s.observe(q.(*corev1.ResourceQuota))
			s.enqueue(q)
		},
		UpdateFunc: func(old, now any) {
			if !apiequality.Semantic.DeepEqual(old.(*corev1.ResourceQuota).Spec, now.(*corev1.ResourceQuota).Spec) {
				s.relimit()
				s.enqueue(now)
			}
			if s.observe(now.(*corev1.ResourceQuota)) {
				s.queue.AddAfter(keyOf(now), quotaInFlight) // what was charged for may fail, and then is not written
			}
		},
		DeleteFunc: s.forget,
	})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("quota-status: watch: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }() // fails only when the informer has ended too
	if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
		return nil
	}
	w := &usageWatch{metadata: s.Metadata, gone: s.enqueueAll, log: s.log}
	joined.Go(func() { s.follow(ctx, w) })
	for range quotaWorkers {
		joined.Go(func() {
			for s.election.await(ctx) && s.next(ctx) {
			}
		})
	}
	for run.Pause(ctx, s.Sync) {
		for _, obj := range informer.GetStore().List() {
			s.enqueue(obj)
		}
	}
	return nil
}

func keyOf(obj any) types.NamespacedName {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	o, ok := obj.(metav1.Object)
	if !ok {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (s *quotaStatus) enqueue(obj any) { s.queue.Add(keyOf(obj)) }

func (s *quotaStatus) relimit() {
	select {
	case s.limits <- struct{}{}:
	default:
	}
}

func (s *quotaStatus) forget(obj any) {
	s.relimit()
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(obj)
	if o := s.observed[key]; o != nil {
		close(o.changed)
	}
	delete(s.observed, key)
}

// enqueueAll is for a namespace in which something has gone.
func (s *quotaStatus) enqueueAll(namespace string) {
	quotas, err := s.Quotas.Quotas.Informer().GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		s.log.Error("resource quotas are not indexed by namespace", zap.Error(err))
		return
	}
	for _, q := range quotas {
		s.queue.Add(keyOf(q))
	}
}

// follow keeps the watches to what quotas limit, until ctx ends.
func (s *quotaStatus) follow(ctx context.Context, w *usageWatch) {
	defer w.stop()
	for {
		changed := s.Changed()
		wanted := map[schema.GroupVersionResource]bool{}
		for _, obj := range s.Quotas.Quotas.Informer().GetStore().List() {
			for _, kind := range s.Kinds(obj.(*corev1.ResourceQuota)) {
				wanted[kind] = true
			}
		}
		w.follow(ctx, wanted)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-s.limits:
		}
		if !run.Pause(ctx, wakeGap) {
			return
		}
	}
}

func (s *quotaStatus) next(ctx context.Context) bool {
	key, shutdown := s.queue.Get()
	if shutdown {
		return false
	}
	defer s.queue.Done(key)
	if !s.election.won() {
		s.queue.Add(key)
		return true
	}
	again, err := s.reconcile(ctx, key)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.log.Warn("a resource quota was not counted, trying again", zap.Stringer("quota", key), zap.Error(err))
		s.queue.AddRateLimited(key)
	case again > 0:
		s.queue.Forget(key)
		s.queue.AddAfter(key, again)
	default:
		s.queue.Forget(key)
	}
	return true
}

// reconcile counts what a quota limits, and writes that into its status. It never lowers the status below the count and
// what was charged within quotaInFlight before the count or since: those writes may still come.
func (s *quotaStatus) reconcile(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	q, early := s.begin(key)
	if q == nil || early > 0 {
		return early, nil
	}
	began := time.Now()
	used, failed := s.Measure(ctx, q)
	took := time.Since(began)
	defer func() { s.end(key, took) }()
	for range quotaConflicts {
		now, charged, changed := s.current(key, began.Add(-quotaInFlight))
		if now == nil || now.UID != q.UID {
			return 0, failed // gone; and one of the same name that is new is counted by itself
		}
		next := now.DeepCopy()
		next.Status = corev1.ResourceQuotaStatus{Hard: now.Spec.Hard.DeepCopy(), Used: corev1.ResourceList{}}
		for name := range now.Spec.Hard {
			before, known := now.Status.Used[name]
			measured, ok := used[name]
			switch {
			case ok && known:
				next.Status.Used[name] = lowered(before, measured, charged[name])
			case ok:
				next.Status.Used[name] = measured
			case known:
				next.Status.Used[name] = before // what cannot be asked stays
			}
		}
		if len(charged) > 0 || now.Status.Used == nil {
			again = quotaInFlight // by then it is known which of those writes came
		}
		if apiequality.Semantic.DeepEqual(next.Status, now.Status) {
			return again, failed
		}
		_, err := s.client.CoreV1().ResourceQuotas(key.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
		switch {
		case err == nil:
			return again, failed
		case apierrors.IsNotFound(err):
			return 0, failed
		case !apierrors.IsConflict(err):
			return 0, errors.Join(failed, err)
		}
		if !waitFor(ctx, changed, quotaCatchUp) {
			break
		}
	}
	return quotaGap, failed
}

// lowered is what the status of one limit becomes: what was measured and what was charged lately, but no more than the
// status says, unless more was measured.
func lowered(before, measured, charged resource.Quantity) resource.Quantity {
	atMost := measured.DeepCopy()
	atMost.Add(charged)
	switch {
	case measured.Cmp(before) >= 0:
		return measured
	case atMost.Cmp(before) >= 0:
		return before
	}
	return atMost
}

// waitFor reports whether c was closed within a time, and before ctx ended.
func waitFor(ctx context.Context, c <-chan struct{}, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}
