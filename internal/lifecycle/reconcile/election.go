package reconcile

import (
	"context"
	"time"
)

// election says whether this replica is the one that writes for all, and has a channel that is closed when that changes.
// Nil: there is no other.
//
// It is no lock: a replica may learn late that another leads by now. What the controllers write therefore carries a
// precondition, or says the same whoever writes it. All informers run in all replicas, so that one that takes over has
// nothing to read first.
type election func() (leads bool, changed <-chan struct{})

// askAgain is how often a replica that does not lead asks again without having been told: that a lease has run out while
// etcd was away is told late.
const askAgain = time.Second

func (e election) won() bool {
	if e == nil {
		return true
	}
	leads, _ := e()
	return leads
}

// await blocks until this replica leads, which it returns, or until ctx ends.
func (e election) await(ctx context.Context) bool {
	for e != nil {
		leads, changed := e()
		if leads {
			break
		}
		timer := time.NewTimer(askAgain)
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
