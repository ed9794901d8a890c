package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Replicas of two releases may read and write the internal keys concurrently, and so may an older release after a rollback.
// Therefore a value written by a newer release is never read partially and never ignored silently. Its format has a version or
// differs recognizably from other formats, and each reader has a safe fallback without it.
//
// Internal keys are outside the prefix of API objects, so that neither API clients nor prefix scans see them. They are separate
// from the internal keys of a front door with another object prefix in the same etcd.
const (
	ownPrefix   = "/portico/"
	otherPrefix = "/portico-of/"
)

// ownRoot returns the prefix of the internal keys that belong to the objects below prefix.
func ownRoot(prefix string) string {
	if prefix == DefaultPrefix {
		return ownPrefix
	}
	return otherPrefix + url.PathEscape(prefix) + "/"
}

// OwnKey returns the full name of an internal key in etcd, for callers that need more than Get and Put.
func (s *Store) OwnKey(key string) string { return s.own + key }

// pageSize bounds the number of keys in each request of a List call. A value may be as large as a discovery document.
const pageSize = 100

// Get reads an internal key. ok is false if it does not exist.
func (s *Store) Get(ctx context.Context, key string) (value []byte, ok bool, err error) {
	client := s.Client()
	if client == nil {
		return nil, false, ErrNotReady
	}
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	resp, err := client.KV.Get(ctx, s.OwnKey(key))
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", key, err)
	}
	if len(resp.Kvs) == 0 {
		return nil, false, nil
	}
	return resp.Kvs[0].Value, true, nil
}

// Put writes an internal key. If it returns an error, the value may still have been stored.
func (s *Store) Put(ctx context.Context, key string, value []byte) error {
	client := s.Client()
	if client == nil {
		return ErrNotReady
	}
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	if _, err := client.KV.Put(ctx, s.OwnKey(key), string(value)); err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return nil
}

// PutFor writes an internal key that expires after ttl. If it returns an error, the value may still have been stored.
func (s *Store) PutFor(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if s.Client() == nil {
		return ErrNotReady
	}
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	return s.putFor(ctx, key, value, ttl)
}

func (s *Store) putFor(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	client := s.Client()
	granted, err := client.Grant(ctx, max(1, int64(ttl/time.Second)))
	if err != nil {
		return fmt.Errorf("ask for the lease of %s: %w", key, err)
	}
	if _, err := client.KV.Put(ctx, s.OwnKey(key), string(value), clientv3.WithLease(granted.ID)); err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return nil
}

// Delete removes an internal key. It returns nil if the key does not exist.
func (s *Store) Delete(ctx context.Context, key string) error {
	client := s.Client()
	if client == nil {
		return ErrNotReady
	}
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	if _, err := client.KV.Delete(ctx, s.OwnKey(key)); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// List returns all internal keys with a prefix, as of one revision.
func (s *Store) List(ctx context.Context, prefix string) (map[string][]byte, error) {
	client := s.Client()
	if client == nil {
		return nil, ErrNotReady
	}
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	all, err := listRange(ctx, client.KV, s.OwnKey(prefix), pageSize)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", prefix, err)
	}
	found := make(map[string][]byte, len(all))
	for key, value := range all {
		found[strings.TrimPrefix(key, s.own)] = value
	}
	return found, nil
}

// listRange reads all keys that begin with start in pages, as of one revision.
func listRange(ctx context.Context, kv clientv3.KV, start string, page int64) (map[string][]byte, error) {
	found := map[string][]byte{}
	end := clientv3.GetPrefixRangeEnd(start)
	var revision int64 // revision of the first page, used for the later ones
	for next := start; ; {
		resp, err := kv.Get(ctx, next, clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithRev(revision))
		if err != nil {
			return nil, err
		}
		for _, kv := range resp.Kvs {
			found[string(kv.Key)] = kv.Value
		}
		if !resp.More || len(resp.Kvs) == 0 {
			return found, nil
		}
		revision = resp.Header.Revision
		next = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// LiveKey returns the full name of the key of a replica, which exists until its process has ended and its lease expired.
func (s *Store) LiveKey(name string) string { return s.OwnKey(liveKeys + name) }

// followRetry is the pause before keys are read again after a watch was lost.
const followRetry = time.Second

// Follow calls changed with every internal key that begins with prefix, and then with each such key that is written, until ctx
// ends. For each key the calls are in the order of the writes. Writes may be skipped if later ones follow, and may be repeated.
// Deletions are not reported. changed must not block.
func (s *Store) Follow(ctx context.Context, prefix string, changed func(key string, value []byte)) {
	s.follow(ctx, prefix, func(kept map[string][]byte) {
		for key, value := range kept {
			changed(key, value)
		}
	}, func(e *clientv3.Event) {
		if e.Type == mvccpb.Event_PUT {
			changed(s.nameOf(e), e.Kv.Value)
		}
	})
}

// Mirror calls replaced with all internal keys that begin with prefix, and again after each write or deletion, until ctx ends.
// replaced must not block, and must not modify or retain the map.
func (s *Store) Mirror(ctx context.Context, prefix string, replaced func(map[string][]byte)) {
	var now map[string][]byte
	s.follow(ctx, prefix, func(kept map[string][]byte) {
		now = kept
		replaced(now)
	}, func(e *clientv3.Event) {
		if e.Type == mvccpb.Event_PUT {
			now[s.nameOf(e)] = e.Kv.Value
		} else {
			delete(now, s.nameOf(e))
		}
		replaced(now)
	})
}

// nameOf returns the name of the internal key of an event, without the root.
func (s *Store) nameOf(e *clientv3.Event) string { return strings.TrimPrefix(string(e.Kv.Key), s.own) }

// follow calls began with all keys and then next with every event. It starts again when the watch ends.
func (s *Store) follow(ctx context.Context, prefix string, began func(map[string][]byte), next func(*clientv3.Event)) {
	for ctx.Err() == nil {
		if err := s.followOnce(ctx, prefix, began, next); err != nil && ctx.Err() == nil {
			s.log.Warn("watch of internal keys ended; listing them again", zap.String("prefix", prefix), zap.Error(err))
		}
		timer := time.NewTimer(followRetry)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

var errWatchEnded = errors.New("the watch ended")

func (s *Store) followOnce(ctx context.Context, prefix string, began func(map[string][]byte), next func(*clientv3.Event)) error {
	client := s.Client()
	if client == nil {
		return ErrNotReady
	}
	// The watch starts after a revision read before the list, so that no change in between is missed.
	revision, err := s.revision(ctx, client.KV, prefix)
	if err != nil {
		return err
	}
	kept, err := s.List(ctx, prefix)
	if err != nil {
		return err
	}
	began(kept)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	for answer := range client.Watch(watching, s.OwnKey(prefix), clientv3.WithPrefix(), clientv3.WithRev(revision+1)) {
		if err := answer.Err(); err != nil {
			return fmt.Errorf("watch %s: %w", prefix, err)
		}
		for _, event := range answer.Events {
			next(event)
		}
	}
	return errWatchEnded
}

func (s *Store) revision(ctx context.Context, kv clientv3.KV, prefix string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	resp, err := kv.Get(ctx, s.OwnKey(prefix), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("read revision: %w", err)
	}
	return resp.Header.Revision, nil
}
