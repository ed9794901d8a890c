package reconcile

import (
	"context"
	"time"
)

// Election says whether this replica leads, and has a channel that is closed when that changes. Nil: there is no other
// replica.
//
// It is no lock: a replica may learn late that another one leads. What the controllers write therefore carries a
// precondition, or is the same on every replica. All informers run in all replicas, so that one that takes over has
// nothing to read first.
type Election func() (leads bool, changed <-chan struct{})

// pollInterval is how often a replica that does not lead asks again: that a lease has expired while etcd was away is
// announced late.
const pollInterval = time.Second

// Leads reports whether this replica leads.
func (e Election) Leads() bool {
	if e == nil {
		return true
	}
	leads, _ := e()
	return leads
}

// Wait blocks until this replica leads, and then returns true, or until ctx ends.
func (e Election) Wait(ctx context.Context) bool {
	for e != nil {
		leads, changed := e()
		if leads {
			break
		}
		timer := time.NewTimer(pollInterval)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
	return ctx.Err() == nil
}
