package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Contents contains all keys and values of the state of the API at one revision: API objects, and internal keys except the keys
// that live only as long as a process.
type Contents map[string][]byte

// errNotVolatile is returned by methods that require a volatile store.
var errNotVolatile = errors.New("only a volatile store can do this")

// contentsTimeout bounds ReadContents and ReplaceContents.
const contentsTimeout = time.Minute

// ReadContents returns all keys as of one revision.
func (s *Store) ReadContents(ctx context.Context) (Contents, error) {
	contents, _, err := s.readContents(ctx)
	return contents, err
}

func (s *Store) readContents(ctx context.Context) (_ Contents, revision int64, err error) {
	client := s.Client()
	if client == nil {
		return nil, 0, ErrNotReady
	}
	ctx, cancel := context.WithTimeout(ctx, contentsTimeout)
	defer cancel()
	contents := Contents{}
	for _, prefix := range []string{strings.TrimSuffix(s.Prefix(), "/") + "/", s.own} {
		resp, err := client.KV.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(revision))
		if err != nil {
			return nil, 0, fmt.Errorf("read the contents of etcd: %w", err)
		}
		revision = resp.Header.Revision
		for _, kv := range resp.Kvs {
			if !strings.HasPrefix(string(kv.Key), s.OwnKey(liveKeys)) {
				contents[string(kv.Key)] = kv.Value
			}
		}
	}
	return contents, revision, nil
}

// ReplaceContents replaces the contents of a volatile store with the result of an earlier ReadContents, in one transaction of
// up to 10 MiB. It deletes keys that are not in wanted and writes keys that differ. Watches receive these changes with new
// revisions. A key that is written loses its lease.
func (s *Store) ReplaceContents(ctx context.Context, wanted Contents) error {
	if !s.cfg.Volatile {
		return errNotVolatile
	}
	const attempts = 50 // each fails only because of a concurrent write
	for range attempts {
		now, revision, err := s.readContents(ctx)
		if err != nil {
			return err
		}
		done, err := s.replace(ctx, now, wanted, revision)
		if err != nil {
			return err
		}
		if done {
			return s.advanceRevision(ctx)
		}
	}
	return errors.New("restore the contents of etcd: others write all the time; stop them first")
}

// advanceRevision writes and deletes an internal key. All changes of one transaction have the same revision, and a watch cache
// reaches it with the first of them, so that a list at that revision may lack the other changes. A list at a later revision has
// all of them.
func (s *Store) advanceRevision(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	key := s.OwnKey("replaced")
	if _, err := s.Client().KV.Put(ctx, key, ""); err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	if _, err := s.Client().KV.Delete(ctx, key); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// replace returns false if there was a write after the revision.
func (s *Store) replace(ctx context.Context, now, wanted Contents, revision int64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, contentsTimeout)
	defer cancel()
	var ops []clientv3.Op
	for key, value := range wanted {
		if old, ok := now[key]; !ok || !bytes.Equal(old, value) {
			ops = append(ops, clientv3.OpPut(key, string(value)))
		}
	}
	for key := range now {
		if _, ok := wanted[key]; !ok {
			ops = append(ops, clientv3.OpDelete(key))
		}
	}
	if len(ops) == 0 {
		return true, nil
	}
	unchanged := func(prefix string) clientv3.Cmp {
		return clientv3.Compare(clientv3.ModRevision(prefix).WithPrefix(), "<", revision+1)
	}
	resp, err := s.Client().KV.Txn(ctx).If(unchanged(strings.TrimSuffix(s.Prefix(), "/") + "/")).Then(ops...).Commit()
	if err != nil {
		return false, fmt.Errorf("restore the contents of etcd: %w", err)
	}
	return resp.Succeeded, nil
}

// ExpireKeys deletes the API objects with a lease that ends within d, as etcd would by then. It requires a volatile store.
func (s *Store) ExpireKeys(ctx context.Context, d time.Duration) error {
	if !s.cfg.Volatile {
		return errNotVolatile
	}
	client := s.Client()
	if client == nil {
		return ErrNotReady
	}
	ctx, cancel := context.WithTimeout(ctx, contentsTimeout)
	defer cancel()
	resp, err := client.KV.Get(ctx, strings.TrimSuffix(s.Prefix(), "/")+"/", clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("read the objects that expire: %w", err)
	}
	ends := map[int64]bool{}
	for _, kv := range resp.Kvs {
		if kv.Lease == 0 {
			continue
		}
		expired, known := ends[kv.Lease]
		if !known {
			lease, err := client.Lease.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
			if err != nil {
				return fmt.Errorf("read when %s expires: %w", kv.Key, err)
			}
			expired = time.Duration(lease.TTL)*time.Second <= d
			ends[kv.Lease] = expired
		}
		if !expired {
			continue
		}
		unchanged := clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)
		if _, err := client.KV.Txn(ctx).If(unchanged).Then(clientv3.OpDelete(string(kv.Key))).Commit(); err != nil {
			return fmt.Errorf("expire %s: %w", kv.Key, err)
		}
	}
	return nil
}
