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

// A replica that dies leaves its key behind until its lease ends. That lease must be long, because a slow etcd may not cost a living
// replica its key. So the dead are found by asking them: the oldest of the other replicas asks each one twice a second whether it
// lives, and ends the lease of one that is gone, or silent, and has not renewed its lease for so long that it cannot lead any more.

// Presence is what is known of a process that was asked whether it lives.
type Presence int

const (
	// Unknown is for a process that cannot be asked.
	Unknown Presence = iota
	// Present answers.
	Present
	// Silent gives no answer in time.
	Silent
	// Gone is when its machine says that nobody listens there.
	Gone
)

const (
	presenceInterval = 500 * time.Millisecond
	// A process that is silent may be slow: it must be silent so many times in a row.
	silentTimes = 2
)

// UsePresence makes this replica ask others whether they live, and end the leases of those that do not. Call it before Run.
func (r *Replicas) UsePresence(ask func(ctx context.Context, name string) Presence) { r.presence = ask }

// watchDead asks until ctx ends.
func (a *session) watchDead(ctx context.Context) {
	silent := map[string]int{} // times in a row
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

// watched are the replicas that are for this one to ask: those without which it is the oldest.
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

// endLease ends the lease of a replica that does not answer, if it was not renewed for so long that it does not lead.
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
		a.log.Warn("a replica is dead, and its lease cannot be ended", zap.String("dead", name), zap.Error(err))
		return
	}
	a.log.Info("a replica is dead: its lease is ended", zap.String("dead", name))
}

// nameIn is the name of the replica with a key.
func (a *session) nameIn(key []byte) string { return strings.TrimPrefix(string(key), a.key("")) }
