package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// followRetry is the pause before what was lost is read again from the start.
const followRetry = time.Second

// Follow calls changed with every one of our own keys that begins with prefix, and then with each that is written, until
// ctx ends. For one key the calls are in the order of the writes; some may be left out when others follow them, and some
// may come twice. Keys that are deleted are not told. changed must not block.
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

// Mirror calls replaced with all of our own keys that begin with prefix, and again after each that is written or deleted,
// until ctx ends. replaced must not block, and must not change the map or keep it.
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

// nameOf is the own key of an event, as callers know it.
func (s *Store) nameOf(e *clientv3.Event) string { return strings.TrimPrefix(string(e.Kv.Key), s.own) }

// follow calls began with what there is, then next with every event, and begins again when it loses sight of them.
func (s *Store) follow(ctx context.Context, prefix string, began func(map[string][]byte), next func(*clientv3.Event)) {
	for ctx.Err() == nil {
		if err := s.followOnce(ctx, prefix, began, next); err != nil && ctx.Err() == nil {
			s.log.Warn("lost sight of own keys, reading them again", zap.String("prefix", prefix), zap.Error(err))
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
	// The watch begins after a revision that is asked for first, so that the list cannot miss what the watch does not tell.
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
