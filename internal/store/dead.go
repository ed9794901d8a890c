package store

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// A replica that dies leaves its key behind until its lease expires. The lease must be long, because a slow etcd must not cost
// a live replica its key. Therefore replicas are also probed: the oldest of the other replicas probes each replica twice a
// second. It revokes the lease of a replica that is gone or silent, if the lease has not been renewed for so long that the
// replica cannot be the leader.

// Presence is the result of a probe of a process.
type Presence int

const (
	// Unknown means that the process cannot be probed.
	Unknown Presence = iota
	// Present means that the process responds.
	Present
	// Silent means that no response arrived in time.
	Silent
	// Gone means that the connection is refused: the machine is up, but the process is not listening.
	Gone
)

const (
	presenceInterval = 500 * time.Millisecond
	// silentTimes is the number of consecutive probes without a response before a process counts as dead. It may only be slow.
	silentTimes = 2
)

// UsePresence sets the probe of other replicas. The leases of dead replicas are then revoked. It must be called before Run.
func (r *Replicas) UsePresence(ask func(ctx context.Context, name string) Presence) { r.presence = ask }

// watchDead probes other replicas until ctx ends.
func (a *session) watchDead(ctx context.Context) {
	silent := map[string]int{} // consecutive probes without a response
	every(ctx, presenceInterval, func() {
		asked := a.watched()
		found := make([]Presence, len(asked))
		var wg sync.WaitGroup
		for i, name := range asked {
			wg.Go(func() { found[i] = a.presence(ctx, name) })
		}
		wg.Wait()
		for i, name := range asked {
			switch found[i] {
			case Silent:
				silent[name]++
			case Gone:
				silent[name] = silentTimes
			default:
				delete(silent, name)
			}
			if silent[name] >= silentTimes {
				a.endLease(ctx, name)
			}
		}
		for name := range silent {
			if !slices.Contains(asked, name) {
				delete(silent, name)
			}
		}
	})
}

// watched returns the replicas that this one probes: all others if it is the oldest, only the oldest if it is the second
// oldest.
func (a *session) watched() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	own, ok := a.members[a.name]
	if !ok {
		return nil
	}
	var older []string
	var all []string
	for name, m := range a.members {
		if name == a.name {
			continue
		}
		all = append(all, name)
		if m.created < own.created {
			older = append(older, name)
		}
	}
	switch len(older) {
	case 0:
		return all
	case 1:
		return older
	}
	return nil
}

// endLease revokes the lease of a replica that does not respond, if the lease was not renewed for so long that the replica is
// not the leader.
func (a *session) endLease(ctx context.Context, name string) {
	a.mu.Lock()
	lease := a.members[name].lease
	a.mu.Unlock()
	if lease == clientv3.NoLease {
		return
	}
	bounded, cancel := a.withTimeout(ctx)
	defer cancel()
	left, err := a.client.TimeToLive(bounded, lease)
	if err != nil || time.Duration(left.GrantedTTL-left.TTL-1)*time.Second < leadTime { // TTL is rounded down
		return
	}
	if _, err := a.client.Revoke(bounded, lease); err != nil {
		a.log.Warn("failed to revoke the lease of a dead replica", zap.String("dead", name), zap.Error(err))
		return
	}
	a.log.Info("revoked the lease of a dead replica", zap.String("dead", name))
}

// nameIn returns the name of the replica from its key.
func (a *session) nameIn(key []byte) string { return strings.TrimPrefix(string(key), a.key("")) }
