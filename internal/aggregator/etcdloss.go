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
// are as good as any and stay ready. A replica that has lost it alone becomes not ready, and then sends its clients to the others.
const (
	etcdLossInterval = time.Second
	// aloneAfter is how long another replica must have had etcd before this one is not ready.
	aloneAfter = 3 * time.Second
	// shedAfter is how long until its clients are sent away, and shedInterval the time between two rounds of that.
	shedAfter    = 10 * time.Second
	shedInterval = 10 * time.Second
)

// etcdLoss is what this replica knows about the others while etcd is lost.
type etcdLoss struct {
	lost func() error
	// elsewhere reports whether another replica has etcd now. Nil: replicas do not ask each other, and no loss is tolerated
	// where there are others.
	elsewhere func(context.Context) bool
	alone     func() bool // no other replica is known
	drainer   *server.Drainer
	log       *zap.Logger

	mu    sync.Mutex // guards what follows
	since time.Time  // since when another replica has had etcd without a gap; zero: none has
	shed  time.Time  // the last round; zero: clients are kept
}

func (h *parts) newEtcdLoss() *etcdLoss {
	l := &etcdLoss{lost: h.store.Lost, drainer: h.drainer, log: h.log.Named("etcd-loss")}
	l.alone = func() bool {
		others, _ := h.replicas.Received()
		return len(others) == 0
	}
	if h.peers != nil {
		l.elsewhere = func(ctx context.Context) bool { return h.peers.Any(ctx, peers.EtcdCheck) }
	}
	return l
}

// tolerated reports whether this replica is ready although etcd does not answer it.
func (l *etcdLoss) tolerated() bool {
	if l.lost() == nil {
		return false
	}
	if l.elsewhere == nil {
		return l.alone()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since.IsZero() || time.Since(l.since) < aloneAfter
}

// run asks the other replicas while etcd is lost, until ctx ends.
func (l *etcdLoss) run(ctx context.Context) error {
	if l.elsewhere == nil {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(etcdLossInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			lost := l.lost() != nil
			l.update(lost, lost && l.elsewhere(ctx), time.Now())
		}
	}
}

// update records what was found at a time.
func (l *etcdLoss) update(lost, elsewhere bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !lost || !elsewhere:
		if !l.shed.IsZero() {
			l.log.Info("clients are served by this replica again")
			l.drainer.Keep()
		}
		l.since, l.shed = time.Time{}, time.Time{}
	case l.since.IsZero():
		l.since = now
		l.log.Warn("another replica has etcd, and this one does not: it is about to be not ready")
	case now.Sub(l.since) >= shedAfter && now.Sub(l.shed) >= shedInterval:
		if l.shed.IsZero() {
			l.log.Warn("clients are sent to other replicas, which have etcd")
		}
		l.shed = now
		l.drainer.Shed()
	}
}
