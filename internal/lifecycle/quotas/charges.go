package quotas

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
)

// chargeBucket is how finely the time of charges is known, and maxBuckets how many are kept for a quota. Beyond that the
// older ones of a long count are taken to be as new as the newest.
const (
	chargeBucket = 100 * time.Millisecond
	maxBuckets   = 64
)

// observedQuota is a quota as the watch has shown it last, and what was charged to it lately.
type observedQuota struct {
	quota   *corev1.ResourceQuota
	charges []charges     // by time, those that may have been under way when the present count began, or are now
	changed chan struct{} // closed when there is a newer one, or none
	began   time.Time     // of the present count, zero between counts
	ended   time.Time     // of the last one
	took    time.Duration // by the last one
}

// charges are the increases of a status that were seen within one chargeBucket.
type charges struct {
	first, last time.Time
	used        corev1.ResourceList
}

// observe notes what a version of a quota was charged with since the one before, and reports whether its status is another.
// Every replica observes, so that one that takes over knows.
//
// A charge is seen after it was made, and so counts as under way for longer than it is. What the status says when it is
// first seen may have been charged just before.
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

// charge adds to what was charged lately, and forgets what is old.
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

// begin returns a quota that is to be counted now, or how long it has to wait for that. Nil: it has gone.
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

// end is called when a count has been written, or could not be. took is how long the count itself took.
func (c *Controller) end(key types.NamespacedName, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.observed[key]; o != nil {
		o.began, o.ended, o.took = time.Time{}, time.Now(), took
	}
}

// current returns a quota as it was seen last, what was charged to it since a time, and a channel that is closed when there
// is a newer one. Nil: it has gone.
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
