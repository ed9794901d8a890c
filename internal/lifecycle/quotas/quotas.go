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
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"portico.dev/internal/clients"
	"portico.dev/internal/lifecycle/reconcile"
	"portico.dev/internal/run"
)

const (
	// DefaultSync equals kube-controller-manager's default of --resource-quota-sync-period.
	DefaultSync = 5 * time.Minute
	// inFlightTime is the maximum time between the charge and the write of an object. Admission charges before the object is
	// written. A count in between does not include the object, and must not lower the status.
	inFlightTime = time.Second
	// minInterval is the minimum time between two counts of one quota. restFactor is the minimum pause as a multiple of the
	// last count's duration, because the cost of a count grows with the number of objects in the namespace.
	minInterval = 250 * time.Millisecond
	restFactor  = 3
	// maxConflicts is the number of attempts to write a count despite conflicts with charges. catchUpTime is how long each
	// attempt waits until the informer shows the charge.
	maxConflicts = 100
	catchUpTime  = time.Second
	workers      = 5
)

// Config configures a Controller. Every field without a default is required.
type Config struct {
	Client clients.Interface
	// Quotas is shared with the rest of the server, which runs it.
	Quotas coreinformers.ResourceQuotaInformer
	// Measure returns the current usage of a quota's namespace. If it returns an error, the result contains the values that
	// could be measured.
	Measure func(ctx context.Context, q *corev1.ResourceQuota) (corev1.ResourceList, error)
	// Kinds returns the resources limited by a quota that are served here.
	Kinds func(q *corev1.ResourceQuota) []schema.GroupVersionResource
	// Metadata watches these resources. It must not reach extension servers.
	Metadata metadata.Interface
	// Changed returns a channel that is closed when the result of Kinds may have changed. Callers must obtain it before they
	// call Kinds.
	Changed func() <-chan struct{}
	// Sync is the interval at which every quota is counted again. Default DefaultSync.
	Sync time.Duration
	// Election reports whether this replica leads. Default nil: this is the only replica.
	Election reconcile.Election
	Logger   *zap.Logger
}

// Controller maintains the limits and their usage in the status of every quota.
type Controller struct {
	Config
	queue         workqueue.TypedRateLimitingInterface[types.NamespacedName]
	limitsChanged chan struct{}

	mu       sync.Mutex // guards observed
	observed map[types.NamespacedName]*observedQuota
}

// New returns a Controller that is idle until Run.
func New(cfg Config) *Controller {
	if cfg.Sync <= 0 {
		cfg.Sync = DefaultSync
	}
	return &Controller{Config: cfg, limitsChanged: make(chan struct{}, 1), observed: map[types.NamespacedName]*observedQuota{}}
}

// Run blocks until ctx ends and all its goroutines have returned.
func (c *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	c.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](reconcile.MinRetry, reconcile.MaxRetry),
		workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "quota-status", Clock: run.QueueClock})
	var joined sync.WaitGroup
	defer joined.Wait()
	defer c.queue.ShutDown()
	defer cancel()
	informer := c.Quotas.Informer()
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(q any) {
			c.noteLimits()
			c.observe(q.(*corev1.ResourceQuota))
			c.enqueue(q)
		},
		UpdateFunc: func(old, now any) {
			if !apiequality.Semantic.DeepEqual(old.(*corev1.ResourceQuota).Spec, now.(*corev1.ResourceQuota).Spec) {
				c.noteLimits()
				c.enqueue(now)
			}
			if c.observe(now.(*corev1.ResourceQuota)) {
				c.queue.AddAfter(keyOf(now), inFlightTime) // the charged write may fail
			}
		},
		DeleteFunc: c.forget,
	})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("quota-status: watch: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }() // fails only if the informer has ended too
	if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
		return nil
	}
	w := &usageWatch{metadata: c.Metadata, gone: c.enqueueAll, log: c.Logger}
	joined.Go(func() { c.follow(ctx, w) })
	for range workers {
		joined.Go(func() {
			for c.Election.Wait(ctx) && c.next(ctx) {
			}
		})
	}
	for run.Pause(ctx, c.Sync) {
		for _, obj := range informer.GetStore().List() {
			c.enqueue(obj)
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

func (c *Controller) enqueue(obj any) { c.queue.Add(keyOf(obj)) }

func (c *Controller) noteLimits() {
	select {
	case c.limitsChanged <- struct{}{}:
	default:
	}
}

func (c *Controller) forget(obj any) {
	c.noteLimits()
	c.mu.Lock()
	defer c.mu.Unlock()
	key := keyOf(obj)
	if o := c.observed[key]; o != nil {
		close(o.changed)
	}
	delete(c.observed, key)
}

// enqueueAll queues the quotas of a namespace in which an object was deleted.
func (c *Controller) enqueueAll(namespace string) {
	quotas, err := c.Quotas.Informer().GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		c.Logger.Error("failed to index ResourceQuotas by namespace", zap.Error(err))
		return
	}
	for _, q := range quotas {
		c.queue.Add(keyOf(q))
	}
}

// follow watches the resources limited by quotas, until ctx ends.
func (c *Controller) follow(ctx context.Context, w *usageWatch) {
	defer w.stop()
	for {
		changed := c.Changed()
		wanted := map[schema.GroupVersionResource]bool{}
		for _, obj := range c.Quotas.Informer().GetStore().List() {
			for _, kind := range c.Kinds(obj.(*corev1.ResourceQuota)) {
				wanted[kind] = true
			}
		}
		w.follow(ctx, wanted)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-c.limitsChanged:
		}
		if !run.Pause(ctx, reconcile.RequeueGap) {
			return
		}
	}
}

func (c *Controller) next(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if !c.Election.Leads() {
		c.queue.Add(key)
		return true
	}
	again, err := c.reconcile(ctx, key)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		c.Logger.Warn("failed to update the usage of a ResourceQuota; retrying", zap.Stringer("quota", key), zap.Error(err))
		c.queue.AddRateLimited(key)
	case again > 0:
		c.queue.Forget(key)
		c.queue.AddAfter(key, again)
	default:
		c.queue.Forget(key)
	}
	return true
}

// reconcile counts the usage of a quota and writes it into the status. It never lowers the status below the count plus the
// charges made since inFlightTime before the count, because these writes may still reach storage.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	q, early := c.begin(key)
	if q == nil || early > 0 {
		return early, nil
	}
	began := time.Now()
	used, failed := c.Measure(ctx, q)
	took := time.Since(began)
	defer func() { c.end(key, took) }()
	for range maxConflicts {
		now, charged, changed := c.current(key, began.Add(-inFlightTime))
		if now == nil || now.UID != q.UID {
			return 0, failed // deleted; a new quota of the same name is counted separately
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
				next.Status.Used[name] = before // it could not be counted
			}
		}
		if len(charged) > 0 || now.Status.Used == nil {
			again = inFlightTime // by then these writes have succeeded or failed
		}
		if apiequality.Semantic.DeepEqual(next.Status, now.Status) {
			return again, failed
		}
		_, err := c.Client.CoreV1().ResourceQuotas(key.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
		switch {
		case err == nil:
			return again, failed
		case apierrors.IsNotFound(err):
			return 0, failed
		case !apierrors.IsConflict(err):
			return 0, errors.Join(failed, err)
		}
		if !waitFor(ctx, changed, catchUpTime) {
			break
		}
	}
	return minInterval, failed
}

// lowered returns the new usage of one limit: the measured usage plus recent charges, but no more than the current status
// unless the measured usage is higher.
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

// waitFor reports whether c was closed within a time and before ctx ended.
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
