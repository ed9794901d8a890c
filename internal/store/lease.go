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

// sayGap is the least time between two writes of a replica's key, so that a storm of changes is a few writes.
const sayGap = 50 * time.Millisecond

// errKeyGone is what a replica hears when its key went: the lease ran out while this process, or etcd, stood still.
var errKeyGone = errors.New("the replica's key is gone")

// attendance is being a replica for the life of one lease.
type attendance struct {
	*Replicas
	client  *kubernetes.Client
	id      clientv3.LeaseID
	members map[string]member // by name
}

// member is one replica's key.
type member struct {
	said []byte
	// since is the revision that made the key: the smaller, the older.
	since int64
}

// key is where the replica of that name is in etcd.
func (r *Replicas) key(name string) string { return r.store.OwnKey(liveKeys + name) }

// attend joins the replicas and stays one until ctx ends or the lease is lost, which is an error.
func (r *Replicas) attend(ctx context.Context) error {
	client := r.store.Client()
	if client == nil {
		return ErrNotReady
	}
	a := &attendance{Replicas: r, client: client, members: make(map[string]member)}
	if err := a.take(ctx); err != nil {
		return err
	}
	defer a.leave(ctx)
	if err := a.say(ctx); err != nil {
		return err
	}
	revision, err := a.look(ctx)
	if err != nil {
		return err
	}
	return a.stay(ctx, revision)
}

// take asks for a lease.
func (a *attendance) take(ctx context.Context) error {
	ctx, cancel := a.soon(ctx)
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

// leave gives the lease back, so that nobody has to wait until it runs out.
func (a *attendance) leave(ctx context.Context) {
	ctx, cancel := a.soon(context.WithoutCancel(ctx))
	defer cancel()
	_, _ = a.client.Revoke(ctx, a.id) // it runs out by itself
}

// soon bounds one call, so that there is time for another before the lease runs out.
func (a *attendance) soon(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.lease/3)
}

func (a *attendance) say(ctx context.Context) error {
	ctx, cancel := a.soon(ctx)
	defer cancel()
	if _, err := a.client.KV.Put(ctx, a.key(a.name), string(a.words()), clientv3.WithLease(a.id)); err != nil {
		return fmt.Errorf("write the replica's key: %w", err)
	}
	return nil
}

func (a *attendance) renew(ctx context.Context) error {
	ctx, cancel := a.soon(ctx)
	defer cancel()
	at := time.Now()
	if _, err := a.client.KeepAliveOnce(ctx, a.id); err != nil {
		return fmt.Errorf("renew the lease: %w", err)
	}
	a.renewed(at)
	return nil
}

// look reads who is there.
func (a *attendance) look(ctx context.Context) (revision int64, err error) {
	ctx, cancel := a.soon(ctx)
	defer cancel()
	found, err := a.client.KV.Get(ctx, a.key(""), clientv3.WithPrefix())
	if err != nil {
		return 0, fmt.Errorf("read the replicas' keys: %w", err)
	}
	for _, kv := range found.Kvs {
		a.members[strings.TrimPrefix(string(kv.Key), a.key(""))] = member{said: kv.Value, since: kv.CreateRevision}
	}
	return found.Header.Revision, a.tell()
}

// stay follows the replicas from a revision on, renews the lease and writes what there is to say.
func (a *attendance) stay(ctx context.Context, revision int64) error {
	watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	events := a.client.Watch(watching, a.key(""), clientv3.WithPrefix(), clientv3.WithRev(revision+1))
	renewal := time.NewTicker(a.lease / 3)
	defer renewal.Stop()
	a.begun()
	spoken := a.spoken // nil while the gap lasts
	var gap <-chan time.Time
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-renewal.C:
			err = a.renew(ctx)
		case <-spoken:
			err = a.say(ctx)
			spoken, gap = nil, time.After(sayGap)
		case <-gap:
			spoken, gap = a.spoken, nil
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

func (a *attendance) follow(events []*clientv3.Event) error {
	for _, e := range events {
		name := strings.TrimPrefix(string(e.Kv.Key), a.key(""))
		if e.Type == clientv3.EventTypeDelete {
			delete(a.members, name)
		} else {
			a.members[name] = member{said: e.Kv.Value, since: e.Kv.CreateRevision}
		}
	}
	return a.tell()
}

// tell passes on what the members say, and who of them leads.
func (a *attendance) tell() error {
	own, alive := a.members[a.name]
	if !alive {
		return errKeyGone
	}
	leads := true
	others := make(map[string][]byte, len(a.members))
	for name, m := range a.members {
		if name == a.name {
			continue
		}
		others[name] = m.said
		leads = leads && own.since < m.since
	}
	a.learn(others, leads)
	return nil
}
