package quotas

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
)

// chargeBucket is the resolution of the time of charges, maxBuckets how many buckets are kept for a quota. Beyond that,
// charges are added to the newest bucket.
const (
	chargeBucket = 100 * time.Millisecond
	maxBuckets   = 64
)

// observedQuota is a quota as the informer showed it last, with recent charges.
type observedQuota struct {
	quota   *corev1.ResourceQuota
	charges []charges     // by time; those that may not have been in storage when the current count began
	changed chan struct{} // closed when the quota is updated or deleted
	began   time.Time     // start of the current count, zero between counts
	ended   time.Time     // end of the last count
	took    time.Duration // duration of the last count
}

// charges are the increases of a status that were seen within one chargeBucket.
type charges struct {
	first, last time.Time
	used        corev1.ResourceList
}

// observe records the charges between two versions of a quota, and reports whether the status changed. It runs on every
// replica, so that one that takes over has the charges.
//
// A charge is observed after it was made, and so counts as in flight for longer than it is. The first observed status
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

// charge adds recent charges, and drops old ones.
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

// begin returns a quota to count now, or how long the count has to wait. Nil: it is gone.
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

// end is called when a count has been written, or could not be. took is the duration of the count.
func (c *Controller) end(key types.NamespacedName, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.observed[key]; o != nil {
		o.began, o.ended, o.took = time.Time{}, time.Now(), took
	}
}

// current returns a quota as observed last, what was charged to it since a time, and a channel that is closed when the quota
// changes. Nil: it is gone.
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
