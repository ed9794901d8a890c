package store

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
)

const (
	// liveKeys are the own keys that go with the process that wrote them.
	liveKeys = "live/"
	// leaseTime is how long a process that died goes on counting as alive. One that ends properly leaves at once.
	leaseTime = 6 * time.Second
	// rejoinInterval is between two attempts to become a replica again.
	rejoinInterval = time.Second
)

// Replicas is the processes that share one etcd, this one included. Each has a key of its own that lives, by a lease, as
// long as its process does, and holds the value that the process last published. The one with the oldest key leads: that is etcd's
// recipe for an election, without keys of its own.
//
// Leading is no lock. A process may learn late that another leads by now, so what a leader writes has to carry a
// precondition of its own, such as a resourceVersion.
type Replicas struct {
	store *Store
	name  string
	lease time.Duration
	log   *zap.Logger
	ready chan struct{}
	// published wakes Run when value has changed.
	published chan struct{}

	mu     sync.Mutex // guards what follows
	value  []byte
	others map[string][]byte // the value of each other replica; replaced, never changed
	leads  bool
	until  time.Time // before this our lease cannot have run out
	// changed is closed and replaced when others or leads change.
	changed chan struct{}
}

// Replicas makes this process known under a name that no other process has. It does nothing until Run.
func (s *Store) Replicas(name string) *Replicas {
	return &Replicas{
		store:     s,
		name:      name,
		lease:     leaseTime,
		log:       s.log.Named("replicas"),
		ready:     make(chan struct{}),
		published: make(chan struct{}, 1),
		changed:   make(chan struct{}),
	}
}

// Name is the name of this process.
func (r *Replicas) Name() string { return r.name }

// Ready is closed when this process was one of the replicas for the first time, or etcd was too full to let it be one.
func (r *Replicas) Ready() <-chan struct{} { return r.ready }

// Say publishes the value of this process. It does not block, and does nothing when value is the last one. Of values
// that follow each other quickly, some are never written; the last one is.
func (r *Replicas) Say(value []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if bytes.Equal(value, r.value) {
		return
	}
	r.value = value
	select {
	case r.published <- struct{}{}:
	default:
	}
}

// Hear returns the last value of each other live replica, empty when it has none yet, and whether this
// process leads. Callers must not change the map.
func (r *Replicas) Hear() (others map[string][]byte, leads bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.others, r.leads && time.Now().Before(r.until)
}

// Changed returns a channel that is closed when Hear next returns something else. Take it before calling Hear. That a
// lease ran out unnoticed while etcd was away is told when etcd is back.
func (r *Replicas) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// Run makes this process a replica until ctx ends, again and again if need be.
func (r *Replicas) Run(ctx context.Context) error {
	var last string
	for {
		err := r.join(ctx)
		r.resign()
		if ctx.Err() != nil {
			return nil
		}
		if err.Error() != last { // once per reason: what an etcd that is full lacks, it may lack for hours
			last = err.Error()
			r.log.Warn("this replica lost its lease and joins again", zap.String("replica", r.name), zap.Error(err))
		}
		if errors.Is(err, rpctypes.ErrNoSpace) {
			r.markReady() // without a key, and so without leading: who starts on a full etcd can still read and delete
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rejoinInterval):
		}
	}
}

// markReady closes ready. Only Run and what it calls may call it.
func (r *Replicas) markReady() {
	select {
	case <-r.ready:
	default:
		close(r.ready)
	}
}

// resign gives up leading. The values of the others stay: they may well be alive.
func (r *Replicas) resign() {
	r.mu.Lock()
	others := r.others
	r.mu.Unlock()
	r.update(others, false)
}

// update sets what Hear returns from now on.
func (r *Replicas) update(others map[string][]byte, leads bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if leads == r.leads && maps.EqualFunc(others, r.others, bytes.Equal) {
		return
	}
	if leads != r.leads {
		r.log.Info("this replica writes for all", zap.String("replica", r.name), zap.Bool("leads", leads))
	}
	r.others, r.leads = others, leads
	r.wake()
}

// renewed notes that the lease is good for its whole time after at.
func (r *Replicas) renewed(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leads && time.Now().After(r.until) { // Hear said otherwise meanwhile
		r.wake()
	}
	r.until = at.Add(r.lease)
}

// wake tells that Hear may return something else. Called with mu held.
func (r *Replicas) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// current is the value to write.
func (r *Replicas) current() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value
}
