package lifecycle

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
	// quotaSettle is how long a quota has to stand still before it is counted anew. Admission charges before the object is
	// written: who counts in between would find room that is taken.
	quotaSettle  = time.Second
	quotaWorkers = 5
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

	mu   sync.Mutex // guards seen
	seen map[types.NamespacedName]still
}

// still is since when a quota has been as it is.
type still struct {
	version string
	since   time.Time
}

func newQuotaStatus(cfg Config, log *zap.Logger) *quotaStatus {
	q := &quotaStatus{Quotas: cfg.Quotas, client: cfg.Client, election: cfg.Leads, log: log,
		limits: make(chan struct{}, 1), seen: map[types.NamespacedName]still{}}
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
			s.enqueue(q)
		},
		UpdateFunc: func(old, now any) {
			if !apiequality.Semantic.DeepEqual(old.(*corev1.ResourceQuota).Spec, now.(*corev1.ResourceQuota).Spec) {
				s.relimit()
			}
			s.enqueue(now)
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
	delete(s.seen, keyOf(obj))
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

// reconcile counts a quota that has stood still, and one whose limits are new at once.
func (s *quotaStatus) reconcile(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	all := s.client.CoreV1().ResourceQuotas(key.Namespace)
	q, err := all.Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	stood := s.stood(key, q.ResourceVersion)
	fresh := !apiequality.Semantic.DeepEqual(q.Spec.Hard, q.Status.Hard) || q.Status.Used == nil
	if stood < quotaSettle && !fresh {
		return quotaSettle - stood, nil
	}
	used, err := s.Measure(ctx, q)
	next := q.DeepCopy()
	next.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard.DeepCopy(), Used: corev1.ResourceList{}}
	for name := range q.Spec.Hard {
		before, counted := q.Status.Used[name]
		now, measured := used[name]
		switch {
		case measured && counted && stood < quotaSettle && before.Cmp(now) > 0, !measured && counted:
			next.Status.Used[name] = before // not lower until it has stood still; and what cannot be asked stays
		case measured:
			next.Status.Used[name] = now
		}
	}
	if stood < quotaSettle {
		again = quotaSettle - stood
	}
	if apiequality.Semantic.DeepEqual(next.Status, q.Status) {
		return again, err
	}
	if _, failed := all.UpdateStatus(ctx, next, metav1.UpdateOptions{}); failed != nil {
		if apierrors.IsConflict(failed) {
			return quotaSettle, err // somebody was charged meanwhile
		}
		return 0, errors.Join(err, ignoring(failed, apierrors.IsNotFound))
	}
	return again, err
}

// stood is how long a quota has been at a version.
func (s *quotaStatus) stood(key types.NamespacedName, version string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if was := s.seen[key]; was.version == version {
		return now.Sub(was.since)
	}
	s.seen[key] = still{version, now}
	return 0
}
