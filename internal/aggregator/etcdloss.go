package aggregator

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/replicas/peers"
	"portico.dev/internal/server"
)

// While an external etcd does not respond, the front door still serves proxied requests and reads from caches. If all
// replicas have lost etcd, they stay ready, because no replica could serve more. A replica that alone has lost etcd
// forwards requests for local groups to the other replicas, becomes not ready, and then makes its clients use them.
const (
	etcdLossInterval = time.Second
	// silenceBefore is how long etcd must have been silent before the other replicas are queried, so that the result
	// is known when etcd is lost. Members of etcd are probed once a second.
	silenceBefore = 1500 * time.Millisecond
	// holdersLife is how long the list of replicas with etcd is valid.
	holdersLife = 4 * time.Second
	// aloneAfter is how long another replica must have had etcd before this one becomes not ready.
	aloneAfter = 3 * time.Second
	// shedAfter is the time until its clients are sent away, and shedInterval the time between two rounds.
	shedAfter    = 10 * time.Second
	shedInterval = 10 * time.Second
)

// etcdLoss tracks which other replicas have etcd while this replica has lost it.
type etcdLoss struct {
	lost    func() error
	silence func() time.Duration   // how long etcd has not responded
	changed func() <-chan struct{} // closed when the result of lost changes
	// withEtcd returns the other replicas that have etcd now. If it is nil, replicas do not query each other, and a
	// loss is tolerated only without other replicas.
	withEtcd func(context.Context) []string
	alone    func() bool // reports whether no other replica is known
	drainer  *server.Drainer
	log      *zap.Logger

	mu         sync.Mutex // guards the fields below
	holders    []string   // replicas that had etcd at the last query
	lastQuery  time.Time  // time of the last query
	aheadSince time.Time  // since when another replica has had etcd without a gap while this one has lost it; zero if no replica has
	shed       time.Time  // time of the last round; zero while clients are kept
}

func (h *parts) newEtcdLoss() *etcdLoss {
	l := &etcdLoss{lost: h.store.Lost, silence: h.store.Silence, changed: h.store.LostChanged, drainer: h.Drainer, log: h.log.Named("etcd-loss")}
	l.alone = func() bool {
		others, _ := h.replicas.Received()
		return len(others) == 0
	}
	if h.peers != nil {
		l.withEtcd = func(ctx context.Context) []string { return h.peers.Answering(ctx, peers.EtcdCheck) }
	}
	return l
}

// tolerated reports whether this replica is ready although etcd does not respond to it.
func (l *etcdLoss) tolerated() bool {
	if l.lost() == nil {
		return false
	}
	if l.withEtcd == nil {
		return l.alone()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.aheadSince.IsZero() || time.Since(l.aheadSince) < aloneAfter
}

// replicasWithEtcd returns the other replicas that have etcd while this one has lost it, sorted by name.
func (l *etcdLoss) replicasWithEtcd() []string {
	if l.withEtcd == nil || l.lost() == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.lastQuery) > holdersLife {
		return nil
	}
	return l.holders
}

// run queries the other replicas while etcd does not respond, until ctx ends.
func (l *etcdLoss) run(ctx context.Context) error {
	if l.withEtcd == nil {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(etcdLossInterval)
	defer ticker.Stop()
	for {
		changed := l.changed()
		lost := l.lost() != nil
		var holders []string
		if lost || l.silence() > silenceBefore {
			holders = l.withEtcd(ctx)
		}
		l.update(lost, holders, time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-changed:
		}
	}
}

// update records the result of a query.
func (l *etcdLoss) update(lost bool, holders []string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holders, l.lastQuery = holders, now
	switch {
	case !lost || len(holders) == 0:
		if !l.shed.IsZero() {
			l.log.Info("this replica keeps client connections again")
			l.drainer.Keep()
		}
		l.aheadSince, l.shed = time.Time{}, time.Time{}
	case l.aheadSince.IsZero():
		l.aheadSince = now
		l.log.Warn("etcd is unreachable from this replica but not from other replicas; forwarding requests for local groups, about to become not ready", zap.Strings("replicas", holders))
	case now.Sub(l.aheadSince) >= shedAfter && now.Sub(l.shed) >= shedInterval:
		if l.shed.IsZero() {
			l.log.Warn("ending watches and closing connections so that clients move to replicas with etcd")
		}
		l.shed = now
		l.drainer.Shed()
	}
}
