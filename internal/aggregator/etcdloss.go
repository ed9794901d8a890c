package aggregator

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/peers"
	"portico.dev/internal/server"
)

// While no member of an external etcd answers, proxied requests and reads from caches go on. If all replicas have lost etcd, they
// are as good as any and stay ready. A replica that has lost it alone hands requests for local groups to the others, becomes not
// ready, and then sends its clients to them.
const (
	etcdLossInterval = time.Second
	// silenceBefore is how long etcd has not answered when the others are first asked, so that they are known when it is lost. Members
	// are asked once a second.
	silenceBefore = 1500 * time.Millisecond
	// holdersLife is how long it counts that another replica had etcd.
	holdersLife = 4 * time.Second
	// aloneAfter is how long another replica must have had etcd before this one is not ready.
	aloneAfter = 3 * time.Second
	// shedAfter is how long until its clients are sent away, and shedInterval the time between two rounds of that.
	shedAfter    = 10 * time.Second
	shedInterval = 10 * time.Second
)

// etcdLoss is what this replica knows about the others while etcd is lost.
type etcdLoss struct {
	lost    func() error
	silence func() time.Duration   // how long etcd has not answered
	changed func() <-chan struct{} // closed when lost returns something else
	// withEtcd asks which other replicas have etcd now. Nil: replicas do not ask each other, and no loss is tolerated where there
	// are others.
	withEtcd func(context.Context) []string
	alone    func() bool // no other replica is known
	drainer  *server.Drainer
	log      *zap.Logger

	mu      sync.Mutex // guards what follows
	holders []string   // the replicas that had etcd when they were asked
	asked   time.Time  // when that was
	since   time.Time  // since when another replica has had etcd without a gap while this one has lost it; zero: none has
	shed    time.Time  // the last round; zero: clients are kept
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

// tolerated reports whether this replica is ready although etcd does not answer it.
func (l *etcdLoss) tolerated() bool {
	if l.lost() == nil {
		return false
	}
	if l.withEtcd == nil {
		return l.alone()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since.IsZero() || time.Since(l.since) < aloneAfter
}

// replicasWithEtcd returns which other replicas have etcd while this one has lost it. They are sorted by name.
func (l *etcdLoss) replicasWithEtcd() []string {
	if l.withEtcd == nil || l.lost() == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.asked) > holdersLife {
		return nil
	}
	return l.holders
}

// run asks the other replicas while etcd does not answer, until ctx ends.
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

// update records what was found at a time.
func (l *etcdLoss) update(lost bool, holders []string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holders, l.asked = holders, now
	switch {
	case !lost || len(holders) == 0:
		if !l.shed.IsZero() {
			l.log.Info("clients are served by this replica again")
			l.drainer.Keep()
		}
		l.since, l.shed = time.Time{}, time.Time{}
	case l.since.IsZero():
		l.since = now
		l.log.Warn("another replica has etcd, and this one does not: requests for local groups are handed to others, and this replica is about to be not ready", zap.Strings("replicas", holders))
	case now.Sub(l.since) >= shedAfter && now.Sub(l.shed) >= shedInterval:
		if l.shed.IsZero() {
			l.log.Warn("clients are sent to other replicas, which have etcd")
		}
		l.shed = now
		l.drainer.Shed()
	}
}
