package quotas

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// usageWatch reports the namespaces in which objects of limited resources were deleted. It watches only resources limited by a
// quota.
type usageWatch struct {
	metadata metadata.Interface
	gone     func(namespace string)
	log      *zap.Logger
	followed map[schema.GroupVersionResource]*followed
}

type followed struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// follow starts and stops watches to match wanted. It must not be called concurrently.
func (w *usageWatch) follow(ctx context.Context, wanted map[schema.GroupVersionResource]bool) {
	if w.followed == nil {
		w.followed = map[schema.GroupVersionResource]*followed{}
	}
	for kind, f := range w.followed {
		if !wanted[kind] {
			f.cancel()
			f.done.Wait()
			delete(w.followed, kind)
		}
	}
	for kind := range wanted {
		if w.followed[kind] == nil && ctx.Err() == nil {
			w.followed[kind] = w.begin(ctx, kind)
		}
	}
}

func (w *usageWatch) stop() { w.follow(context.Background(), nil) }

func (w *usageWatch) begin(ctx context.Context, kind schema.GroupVersionResource) *followed {
	informer := metadatainformer.NewFilteredMetadataInformer(w.metadata, kind, metav1.NamespaceAll, 0, nil, nil).Informer()
	// Names suffice to detect deletions, including deletions missed during a disconnect. An object with reduced usage, such as
	// a completed pod, is detected by its update.
	_ = informer.SetTransform(func(obj any) (any, error) { // fails only if the informer is running
		if o, ok := obj.(*metav1.PartialObjectMetadata); ok {
			o.ObjectMeta = metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
		}
		return obj, nil
	})
	tell := func(obj any) { w.gone(keyOf(obj).Namespace) }
	handler := cache.ResourceEventHandlerFuncs{DeleteFunc: tell}
	if changes(kind) {
		handler.UpdateFunc = func(_, now any) { tell(now) }
	}
	if _, err := informer.AddEventHandler(handler); err != nil {
		w.log.Error("failed to add an event handler; quota usage is updated late", zap.Stringer("resource", kind), zap.Error(err))
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &followed{cancel: cancel}
	f.done.Go(func() { informer.RunWithContext(ctx) })
	return f
}

// changes reports whether updates of objects of a kind can lower their usage.
func changes(kind schema.GroupVersionResource) bool {
	switch kind.GroupResource() {
	case corev1.Resource("pods"), corev1.Resource("services"), corev1.Resource("persistentvolumeclaims"):
		return true
	}
	return false
}

// chargeBucket is the time resolution of charges. maxBuckets is the maximum number of buckets per quota. Beyond it, charges are
// added to the newest bucket.
const (
	chargeBucket = 100 * time.Millisecond
	maxBuckets   = 64
)

// observedQuota is the last observed state of a quota, with recent charges.
type observedQuota struct {
	quota   *corev1.ResourceQuota
	charges []charges     // by time; only charges that may not have been in storage when the current count began
	changed chan struct{} // closed when the quota is updated or deleted
	began   time.Time     // start of the current count; zero between counts
	ended   time.Time     // end of the last count
	took    time.Duration // duration of the last count
}

// charges contains the increases of a status observed within one chargeBucket.
type charges struct {
	first, last time.Time
	used        corev1.ResourceList
}

// observe records the charges between two versions of a quota, and reports whether the status changed. It runs on every
// replica, so that a new leader has the charges.
//
// A charge is observed after it was made, and therefore counts as in flight for longer than it is. The first observed status
// counts as charged just before.
func (c *Controller) observe(q *corev1.ResourceQuota) bool {
	key, now := keyOf(q), time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.observed[key]
	if o != nil && o.quota.UID != q.UID {
		close(o.changed)
		o = nil
	}
	before := corev1.ResourceQuotaStatus{}
	if o == nil {
		o = &observedQuota{}
		c.observed[key] = o
	} else {
		close(o.changed)
		before = o.quota.Status
	}
	o.quota, o.changed = q, make(chan struct{})
	raised := corev1.ResourceList{}
	for name, used := range q.Status.Used {
		was := before.Used[name]
		if used.Cmp(was) > 0 {
			used.Sub(was)
			raised[name] = used
		}
	}
	o.charge(now, raised)
	return !apiequality.Semantic.DeepEqual(before, q.Status)
}

// charge adds recent charges and drops old ones.
func (o *observedQuota) charge(now time.Time, used corev1.ResourceList) {
	needed := now
	if !o.began.IsZero() {
		needed = o.began
	}
	o.charges = slices.DeleteFunc(o.charges, func(c charges) bool { return needed.Sub(c.last) > inFlightTime })
	if len(used) == 0 {
		return
	}
	if n := len(o.charges); n == maxBuckets || n > 0 && now.Sub(o.charges[n-1].first) < chargeBucket {
		newest := &o.charges[n-1]
		newest.last, newest.used = now, quota.Add(newest.used, used)
		return
	}
	o.charges = append(o.charges, charges{now, now, used})
}

// begin returns a quota to count now, or the time until the count may start. The quota is nil if it was deleted.
func (c *Controller) begin(key types.NamespacedName) (q *corev1.ResourceQuota, early time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.observed[key]
	if o == nil {
		return nil, 0
	}
	now := time.Now()
	if early := max(minInterval, restFactor*o.took) - now.Sub(o.ended); early > 0 {
		return o.quota, early
	}
	o.began = now
	return o.quota, 0
}

// end must be called after a count has been written or has failed. took is the duration of the count.
func (c *Controller) end(key types.NamespacedName, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.observed[key]; o != nil {
		o.began, o.ended, o.took = time.Time{}, time.Now(), took
	}
}

// current returns the last observed state of a quota, the charges made since a time, and a channel that is closed when the
// quota changes. The quota is nil if it was deleted.
func (c *Controller) current(key types.NamespacedName, since time.Time) (q *corev1.ResourceQuota, charged corev1.ResourceList, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.observed[key]
	if o == nil {
		return nil, nil, nil
	}
	charged = corev1.ResourceList{}
	for _, c := range o.charges {
		if !c.last.Before(since) {
			charged = quota.Add(charged, c.used)
		}
	}
	return o.quota, charged, o.changed
}
