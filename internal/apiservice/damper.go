package apiservice

import (
	"maps"
	"sync"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// dampTime is how long bad news have to last among several replicas before they are written. Replicas see one event
// moments apart, and each of them may be mistaken for a moment.
const dampTime = 2 * time.Second

// damper holds bad news back. Good news pass at once, and so does everything where there is one replica.
type damper struct {
	mu sync.Mutex
	// since is when a condition that stands at True was first to be otherwise.
	since map[damped]time.Time
}

type damped struct {
	apiService string
	condition  apiregistrationv1.APIServiceConditionType
}

// settle returns the conditions that may be written now: those wanted, with what stands in the place of bad news that
// are too young. wait is when to ask again, 0 when nothing is held back.
func (d *damper) settle(name string, stored, wanted []apiregistrationv1.APIServiceCondition, now time.Time) (settled []apiregistrationv1.APIServiceCondition, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since == nil {
		d.since = make(map[damped]time.Time)
	}
	for _, c := range wanted {
		if c.Type == apiregistrationv1.Available || c.Type == availableOnAllReplicas {
			var left time.Duration
			if c, left = d.hold(damped{name, c.Type}, stored, c, now); left > 0 && (wait == 0 || left < wait) {
				wait = left
			}
		}
		settled = append(settled, c)
	}
	return settled, wait
}

// hold is settle for one condition.
func (d *damper) hold(key damped, stored []apiregistrationv1.APIServiceCondition, wanted apiregistrationv1.APIServiceCondition, now time.Time) (apiregistrationv1.APIServiceCondition, time.Duration) {
	stands, _ := find(stored, wanted.Type)
	if wanted.Status == apiregistrationv1.ConditionTrue || stands.Status != apiregistrationv1.ConditionTrue {
		delete(d.since, key)
		return wanted, 0
	}
	since, held := d.since[key]
	if !held {
		since = now
		d.since[key] = now
	}
	if left := dampTime - now.Sub(since); left > 0 {
		return stands, left
	}
	return wanted, 0
}

func (d *damper) forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.since, func(k damped, _ time.Time) bool { return k.apiService == name })
}
