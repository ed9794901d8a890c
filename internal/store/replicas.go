package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"
)

const (
	// liveKeys is the prefix of internal keys that are removed when the process that wrote them ends.
	liveKeys = "live/"
	// leaseTime is how long a process that died counts as alive. A process that stops normally is removed immediately.
	leaseTime = 6 * time.Second
	// renewInterval is the interval between lease renewals. leadTime is how long a replica may lead after the start of its last
	// successful renewal. Another replica may therefore lead before the lease has expired (dead.go).
	renewInterval = 500 * time.Millisecond
	leadTime      = 1500 * time.Millisecond
	// rejoinInterval is the time between two attempts to become a replica again.
	rejoinInterval = time.Second
)

// Replicas are the processes that share one etcd, including this one. Each replica has a key with a lease. The key exists as
// long as the process, and contains the values that the process last published, in sections (Section). The replica with the
// oldest key leads. This is etcd's recipe for an election, without additional keys.
//
// Leadership is not a lock. A process may learn late that another one leads, so every write of a leader needs a precondition,
// such as a resource version.
type Replicas struct {
	store *Store
	name  string
	lease time.Duration
	log   *zap.Logger
	ready chan struct{}
	// published wakes Run when value has changed.
	published chan struct{}
	// presence probes another replica. If nil, replicas are not probed. It is set before Run.
	presence func(ctx context.Context, name string) Presence

	mu       sync.Mutex // guards the fields below
	sections map[string]json.RawMessage
	value    []byte            // the encoded sections
	others   map[string][]byte // the value of each other replica; replaced, never modified
	// decoded contains the sections of each other replica; replaced, never modified.
	decoded map[string]map[string]json.RawMessage
	leads   bool
	until   time.Time             // this process does not lead after this time unless it has renewed its lease
	members map[string]replicaKey // all live replicas; replaced, never modified
	// changed is closed and replaced when others or leads change.
	changed chan struct{}
}

// Replicas returns this process as a replica with a unique name. It is idle until Run.
func (s *Store) Replicas(name string) *Replicas {
	return &Replicas{
		store:     s,
		name:      name,
		lease:     leaseTime,
		log:       s.log.Named("replicas"),
		ready:     make(chan struct{}),
		published: make(chan struct{}, 1),
		sections:  make(map[string]json.RawMessage),
		changed:   make(chan struct{}),
	}
}

// Name returns the name of this process.
func (r *Replicas) Name() string { return r.name }

// Ready is closed when this process has become a replica, or when etcd was too full for that.
func (r *Replicas) Ready() <-chan struct{} { return r.ready }

// Received returns the other live replicas with their values, and whether this process leads. Callers must not modify the map.
func (r *Replicas) Received() (others map[string][]byte, leads bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.others, r.leads && time.Now().Before(r.until)
}

// Oldest returns the names of all live replicas, oldest first. It omits this replica while it has no key.
func (r *Replicas) Oldest() []string {
	r.mu.Lock()
	members := r.members
	r.mu.Unlock()
	return slices.SortedFunc(maps.Keys(members), func(a, b string) int { return cmp.Compare(members[a].created, members[b].created) })
}

// Section is one part of the data that replicas publish. Each component has a separate section. Its values are JSON. New fields
// may be added, because older releases ignore them. A release with an incompatible change must use a new section name, and
// publish both sections until all older releases are gone.
type Section struct {
	replicas *Replicas
	name     string
}

// Section returns the section with a name.
func (r *Replicas) Section(name string) *Section { return &Section{r, name} }

// Publish publishes the value of this process. It does not block, and ignores an unchanged value. If values change quickly,
// intermediate ones may never be written. The last one always is.
func (s *Section) Publish(value []byte) {
	r := s.replicas
	r.mu.Lock()
	defer r.mu.Unlock()
	if bytes.Equal(value, r.sections[s.name]) {
		return
	}
	sections := maps.Clone(r.sections)
	sections[s.name] = value
	text, err := json.Marshal(replicaValue{Sections: sections})
	if err != nil {
		r.log.Error("failed to encode data for other replicas", zap.String("section", s.name), zap.Error(err))
		return
	}
	r.sections, r.value = sections, text
	select {
	case r.published <- struct{}{}:
	default:
	}
}

// Received returns the last value of each other live replica, empty if it has none yet, and whether this process leads.
func (s *Section) Received() (others map[string][]byte, leads bool) {
	r := s.replicas
	r.mu.Lock()
	defer r.mu.Unlock()
	others = make(map[string][]byte, len(r.decoded))
	for name, sections := range r.decoded {
		others[name] = sections[s.name]
	}
	return others, r.leads && time.Now().Before(r.until)
}

// Changed is like Replicas.Changed.
func (s *Section) Changed() <-chan struct{} { return s.replicas.Changed() }

// replicaValue is the value of a replica's key.
type replicaValue struct {
	Sections map[string]json.RawMessage `json:"sections"`
}

// VerdictSection is the section that made up the whole value in releases without sections.
const VerdictSection = "verdicts"

// decodeSections decodes a replica's value. It returns nil for a replica that has not published yet.
func decodeSections(value []byte) (map[string]json.RawMessage, error) {
	if len(value) == 0 {
		return nil, nil
	}
	var v replicaValue
	if err := json.Unmarshal(value, &v); err != nil {
		return nil, fmt.Errorf("decode what a replica publishes: %w", err)
	}
	if v.Sections == nil {
		return map[string]json.RawMessage{VerdictSection: value}, nil
	}
	return v.Sections, nil
}

// Changed returns a channel that is closed when the result of Received changes. Callers must obtain it before they call
// Received. A lease that expired while etcd was unavailable is reported when etcd is back.
func (r *Replicas) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// Run makes this process a replica until ctx ends, and again whenever its lease is lost.
func (r *Replicas) Run(ctx context.Context) error {
	var last string
	for {
		began := time.Now()
		err := r.join(ctx)
		r.resign()
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > r.lease { // it was a replica, and a busy machine may be late to renew a lease: a warning only if it cannot rejoin
			last = ""
			r.log.Info("replica lost its lease; rejoining", zap.String("replica", r.name), zap.Error(err))
		} else if err.Error() != last { // once per reason: a full etcd may refuse writes for hours
			last = err.Error()
			r.log.Warn("replica lost its lease; rejoining", zap.String("replica", r.name), zap.Error(err))
		}
		if errors.Is(err, rpctypes.ErrNoSpace) {
			r.markReady() // without a key, and therefore without leadership: a process that starts with a full etcd can still read and delete
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rejoinInterval):
		}
	}
}

// markReady closes ready. It may be called only by Run and its callees.
func (r *Replicas) markReady() {
	select {
	case <-r.ready:
	default:
		close(r.ready)
	}
}

// resign gives up leadership. It keeps the values of the other replicas, because they may be alive.
func (r *Replicas) resign() {
	r.mu.Lock()
	others := r.others
	r.mu.Unlock()
	r.update(others, false)
}

// update sets the results of Received.
func (r *Replicas) update(others map[string][]byte, leads bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if leads == r.leads && maps.EqualFunc(others, r.others, bytes.Equal) {
		return
	}
	if leads != r.leads {
		r.log.Info("leadership changed", zap.String("replica", r.name), zap.Bool("leads", leads))
	}
	decoded := make(map[string]map[string]json.RawMessage, len(others))
	for name, value := range others {
		if before, known := r.others[name]; known && bytes.Equal(before, value) {
			decoded[name] = r.decoded[name]
			continue
		}
		sections, err := decodeSections(value)
		if err != nil {
			r.log.Warn("ignoring the unreadable data of a replica, which may run another release; it counts as alive", zap.String("replica", name), zap.Error(err))
		}
		decoded[name] = sections
	}
	r.others, r.leads, r.decoded = others, leads, decoded
	r.wake()
}

// renewed records that the lease was renewed at a time.
func (r *Replicas) renewed(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leads && time.Now().After(r.until) { // Received has reported the loss of leadership in the meantime
		r.wake()
	}
	r.until = at.Add(leadTime)
}

// wake reports that the result of Received may have changed. It is called with mu held.
func (r *Replicas) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// current returns the value to write.
func (r *Replicas) current() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value
}

// putInterval is the minimum time between two writes of a replica's key, so that frequent changes cause few writes.
const putInterval = 50 * time.Millisecond

// errKeyGone means that the key was removed because the lease expired while this process or etcd was suspended.
var errKeyGone = errors.New("the replica's key is gone")

// session is the lifetime of one lease.
type session struct {
	*Replicas
	client *kubernetes.Client
	id     clientv3.LeaseID
	keys   map[string]replicaKey // by name
}

// replicaKey is one replica's key.
type replicaKey struct {
	value []byte
	// created is the create revision of the key: the lower, the older.
	created int64
	lease   clientv3.LeaseID
}

// key returns the key of a replica in etcd.
func (r *Replicas) key(name string) string { return r.store.OwnKey(liveKeys + name) }

// join makes this process a replica until ctx ends or the lease is lost, which is an error.
func (r *Replicas) join(ctx context.Context) error {
	client := r.store.Client()
	if client == nil {
		return ErrNotReady
	}
	a := &session{Replicas: r, client: client, keys: make(map[string]replicaKey)}
	if err := a.grant(ctx); err != nil {
		return err
	}
	defer a.revoke(ctx)
	if err := a.put(ctx); err != nil {
		return err
	}
	revision, err := a.list(ctx)
	if err != nil {
		return err
	}
	return a.run(ctx, revision)
}

// grant requests a lease.
func (a *session) grant(ctx context.Context) error {
	ctx, cancel := a.withTimeout(ctx)
	defer cancel()
	at := time.Now()
	granted, err := a.client.Grant(ctx, int64(a.lease/time.Second))
	if err != nil {
		return fmt.Errorf("ask for a lease: %w", err)
	}
	a.id = granted.ID
	a.renewed(at)
	return nil
}

// revoke revokes the lease, so that other replicas do not wait until it expires.
func (a *session) revoke(ctx context.Context) {
	ctx, cancel := a.withTimeout(context.WithoutCancel(ctx))
	defer cancel()
	_, _ = a.client.Revoke(ctx, a.id) // otherwise it expires
}

// withTimeout bounds one call, so that another call can follow before the lease expires.
func (a *session) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.lease/3)
}

func (a *session) put(ctx context.Context) error {
	ctx, cancel := a.withTimeout(ctx)
	defer cancel()
	if _, err := a.client.KV.Put(ctx, a.key(a.name), string(a.current()), clientv3.WithLease(a.id)); err != nil {
		return fmt.Errorf("write the replica's key: %w", err)
	}
	return nil
}

func (a *session) renew(ctx context.Context) error {
	ctx, cancel := a.withTimeout(ctx)
	defer cancel()
	at := time.Now()
	if _, err := a.client.KeepAliveOnce(ctx, a.id); err != nil {
		return fmt.Errorf("renew the lease: %w", err)
	}
	a.renewed(at)
	return nil
}

// list reads the keys of all replicas.
func (a *session) list(ctx context.Context) (revision int64, err error) {
	ctx, cancel := a.withTimeout(ctx)
	defer cancel()
	found, err := a.client.KV.Get(ctx, a.key(""), clientv3.WithPrefix())
	if err != nil {
		return 0, fmt.Errorf("read the replicas' keys: %w", err)
	}
	for _, kv := range found.Kvs {
		a.keys[a.nameIn(kv.Key)] = replicaKey{value: kv.Value, created: kv.CreateRevision, lease: clientv3.LeaseID(kv.Lease)}
	}
	return found.Header.Revision, a.notify()
}

// run watches the replicas' keys from a revision on, renews the lease and writes this replica's value when it changes.
func (a *session) run(ctx context.Context, revision int64) error {
	watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	events := a.client.Watch(watching, a.key(""), clientv3.WithPrefix(), clientv3.WithRev(revision+1))
	renewal := time.NewTicker(renewInterval)
	defer renewal.Stop()
	if a.presence != nil {
		var asking sync.WaitGroup
		defer asking.Wait()
		bounded, cancel := context.WithCancel(ctx)
		defer cancel()
		asking.Go(func() { a.watchDead(bounded) })
	}
	a.markReady()
	published := a.published // nil during the gap
	var gap <-chan time.Time
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-renewal.C:
			err = a.renew(ctx)
		case <-published:
			err = a.put(ctx)
			published, gap = nil, time.After(putInterval)
		case <-gap:
			published, gap = a.published, nil
		case batch, open := <-events:
			if err = batch.Err(); err == nil && !open {
				err = errors.New("the watch of the replicas' keys ended")
			}
			if err == nil {
				err = a.follow(batch.Events)
			}
		}
		if err != nil {
			return err
		}
	}
}

func (a *session) follow(events []*clientv3.Event) error {
	for _, e := range events {
		name := a.nameIn(e.Kv.Key)
		if e.Type == clientv3.EventTypeDelete {
			delete(a.keys, name)
		} else {
			a.keys[name] = replicaKey{value: e.Kv.Value, created: e.Kv.CreateRevision, lease: clientv3.LeaseID(e.Kv.Lease)}
		}
	}
	return a.notify()
}

// notify updates the values of the other replicas and whether this one leads.
func (a *session) notify() error {
	own, alive := a.keys[a.name]
	if !alive {
		return errKeyGone
	}
	a.mu.Lock()
	a.members = maps.Clone(a.keys)
	a.mu.Unlock()
	leads := true
	others := make(map[string][]byte, len(a.keys))
	for name, m := range a.keys {
		if name == a.name {
			continue
		}
		others[name] = m.value
		leads = leads && own.created < m.created
	}
	a.update(others, leads)
	return nil
}
