package apiservice

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/routetable"
)

// Readiness configures when a replica reports not ready because it does not reach backends that other replicas reach. A
// load balancer then sends its clients to these replicas. All replicas must have the same settings.
//
// Removing a replica helps its clients only if the remaining replicas reach the backend and are numerous enough. A replica
// therefore stays ready if no live replica reaches the backend, and if too many replicas have already left. All replicas
// decide by the verdicts that they share through etcd, in the same order, so that they agree on which replicas leave. Until
// a change has reached all replicas, which takes a fraction of a second, more may leave. A verdict that has just changed is
// ignored for that time.
type Readiness struct {
	// APIServices are the names of the APIServices with backends that a ready replica should reach.
	APIServices []string
	// MaxNotReady is the share of the live replicas that may be not ready for this reason, from 0 to 1, rounded down to
	// whole replicas: 0.5 lets one of two or three leave, and two of four.
	MaxNotReady float64
}

// ToleratedError is the reason why a replica stays ready although it does not reach a backend.
type ToleratedError struct {
	// APIService names the unreachable backend, Message is this replica's verdict on it, and Why the reason to stay ready.
	APIService, Message, Why string
}

func (e *ToleratedError) Error() string {
	return fmt.Sprintf("APIService %s is unavailable on this replica (%s), which stays ready: %s", e.APIService, e.Message, e.Why)
}

// replicaReach contains the APIServices that one live replica reaches, by name. An APIService without a verdict is not
// reached.
type replicaReach struct {
	replica string
	reaches map[string]bool
}

// leaving returns the names of the replicas that should not be ready, in the order in which they leave: sorted by the
// number of missed backends, highest first, then by name. A replica misses a backend that it does not reach and another
// replica does. The result does not depend on the order of the arguments.
func (d *Readiness) leaving(live []replicaReach) []string {
	missed := make(map[string]int)
	for _, name := range d.APIServices {
		reached := slices.ContainsFunc(live, func(r replicaReach) bool { return r.reaches[name] })
		for _, r := range live {
			if reached && !r.reaches[name] {
				missed[r.replica]++
			}
		}
	}
	out := slices.SortedFunc(maps.Keys(missed), func(a, b string) int { return cmp.Or(cmp.Compare(missed[b], missed[a]), cmp.Compare(a, b)) })
	// A share such as 0.2 of 5 must be exactly one replica despite floating-point rounding.
	most := int(d.MaxNotReady*float64(len(live)) + 1e-9)
	return out[:min(most, len(out))]
}

// CheckReadiness reports whether this replica should be ready with regard to one APIService of d. The error is nil if its
// backend is reached or the group-version is served locally, a ToleratedError if the replica should be ready nevertheless,
// and any other error if it should not. It reads snapshots only.
func (c *Controller) CheckReadiness(d Readiness, name string) error {
	table := c.Table()
	r, ok := table.OfAPIService(name)
	switch {
	case !ok && !table.Synced():
		return errors.New("the APIServices have not been read yet")
	case !ok:
		return fmt.Errorf("APIService %s does not exist", name)
	case r.Local || r.Available():
		return nil
	}
	tolerated := &ToleratedError{APIService: name, Message: r.Condition.Message}
	if t, turned := c.transitions.last(name); turned && t.From == apiregistrationv1.ConditionTrue && time.Since(t.Time) < debounceTime {
		tolerated.Why = "it was available a moment ago"
		return tolerated
	}
	live := c.replicas.reach(table, d.APIServices)
	leaving := d.leaving(live)
	switch {
	case slices.Contains(leaving, c.replicas.name):
		return fmt.Errorf("APIService %s is unavailable on this replica, and available on others: %s: %s", name, r.Condition.Reason, r.Condition.Message)
	case !slices.ContainsFunc(live, func(o replicaReach) bool { return o.reaches[name] }):
		tolerated.Why = "it is available on no replica"
	default:
		tolerated.Why = fmt.Sprintf("no more than %d of %d replicas may be not ready for this reason", int(d.MaxNotReady*float64(len(live))+1e-9), len(live))
	}
	return tolerated
}

// reach returns which of the named APIServices every live replica reaches, by this replica's table and the verdicts that
// the other replicas have published on the same registrations.
func (c *replicas) reach(t *routetable.Table, names []string) []replicaReach {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := replicaReach{replica: c.name, reaches: make(map[string]bool, len(names))}
	live := []replicaReach{own}
	for replica := range c.decoded {
		live = append(live, replicaReach{replica: replica, reaches: make(map[string]bool, len(names))})
	}
	for _, name := range names {
		r, ok := t.OfAPIService(name)
		if !ok {
			continue
		}
		own.reaches[name] = r.Local || r.Available()
		for _, other := range live[1:] {
			v, has := c.decoded[other.replica][name]
			other.reaches[name] = r.Local || has && v.matches(r) && v.Status == apiregistrationv1.ConditionTrue
		}
	}
	return live
}
