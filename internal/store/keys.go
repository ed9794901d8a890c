package store

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Our own keys are apart from the objects of the API, so that neither an API client nor a prefix scan can meet them, and
// apart from those of a front door that keeps its objects below another prefix of the same etcd.
const (
	ownPrefix   = "/portico/"
	otherPrefix = "/portico-of/"
)

// ownRoot is where the own keys are that go with the objects below prefix.
func ownRoot(prefix string) string {
	if prefix == DefaultPrefix {
		return ownPrefix
	}
	return otherPrefix + url.PathEscape(prefix) + "/"
}

// OwnKey is where one of our own keys is in etcd, for those who need more of etcd than Get and Put.
func (s *Store) OwnKey(key string) string { return s.own + key }

// pageSize bounds what one List call asks of etcd at a time; a value may be as large as a discovery document.
const pageSize = 100

// Get reads one of our own keys. ok is false when there is none.
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

// Put writes one of our own keys. It has been stored when the error is nil; after an error it may have been.
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

// Delete removes one of our own keys. A key that is not there is no error.
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

// List reads all of our own keys that begin with prefix, as they were at one moment.
func (s *Store) List(ctx context.Context, prefix string) (map[string][]byte, error) {
	client := s.Client()
	if client == nil {
		return nil, ErrNotReady
	}
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	found := map[string][]byte{}
	end := clientv3.GetPrefixRangeEnd(s.OwnKey(prefix))
	var revision int64 // that of the first page, asked of the later ones
	for next := s.OwnKey(prefix); ; {
		resp, err := client.KV.Get(ctx, next,
			clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(revision))
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", prefix, err)
		}
		for _, kv := range resp.Kvs {
			found[strings.TrimPrefix(string(kv.Key), s.own)] = kv.Value
		}
		if !resp.More || len(resp.Kvs) == 0 {
			return found, nil
		}
		revision = resp.Header.Revision
		next = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// LiveKey is where, in etcd, the key of a replica is for as long as its process lives, and its lease after that.
func (s *Store) LiveKey(name string) string { return s.OwnKey(liveKeys + name) }
