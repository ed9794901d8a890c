package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// putInterval is the least time between two writes of a replica's key, so that a storm of changes is a few writes.
const putInterval = 50 * time.Millisecond

// errKeyGone means that the key has gone: the lease expired while this process, or etcd, stood still.
var errKeyGone = errors.New("the replica's key is gone")

// session is the life of one lease.
type session struct {
	*Replicas
	client *kubernetes.Client
	id     clientv3.LeaseID
	keys   map[string]replicaKey // by name
}

// replicaKey is one replica's key.
type replicaKey struct {
	value []byte
	// created is the revision that made the key: the smaller, the older.
	created int64
}

// key is where the replica of that name is in etcd.
func (r *Replicas) key(name string) string { return r.store.OwnKey(liveKeys + name) }

// join joins the replicas and stays one until ctx ends or the lease is lost, which is an error.
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

// grant asks for a lease.
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

// revoke ends the lease, so that nobody waits until it expires.
func (a *session) revoke(ctx context.Context) {
	ctx, cancel := a.withTimeout(context.WithoutCancel(ctx))
	defer cancel()
	_, _ = a.client.Revoke(ctx, a.id) // it runs out by itself
}

// withTimeout bounds one call, so that there is time for another before the lease runs out.
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
		a.keys[strings.TrimPrefix(string(kv.Key), a.key(""))] = replicaKey{value: kv.Value, created: kv.CreateRevision}
	}
	return found.Header.Revision, a.notify()
}

// run watches the replicas' keys from a revision on, renews the lease and writes this replica's value when it changes.
func (a *session) run(ctx context.Context, revision int64) error {
	watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	events := a.client.Watch(watching, a.key(""), clientv3.WithPrefix(), clientv3.WithRev(revision+1))
	renewal := time.NewTicker(a.lease / 3)
	defer renewal.Stop()
	a.markReady()
	published := a.published // nil while the gap lasts
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
		name := strings.TrimPrefix(string(e.Kv.Key), a.key(""))
		if e.Type == clientv3.EventTypeDelete {
			delete(a.keys, name)
		} else {
			a.keys[name] = replicaKey{value: e.Kv.Value, created: e.Kv.CreateRevision}
		}
	}
	return a.notify()
}

// notify passes on the values of the other replicas, and whether this one leads.
func (a *session) notify() error {
	own, alive := a.keys[a.name]
	if !alive {
		return errKeyGone
	}
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
