package store

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// stateRevision is the revision of all data read from a state. No object in etcd has this revision, so data from a state is
// distinguishable from data from etcd. Watches and paginated lists cannot continue from it in etcd. They receive a compaction
// error, and list again.
const stateRevision = 1

// IsStateRevision reports whether a resource version is the revision of data read from a state snapshot.
func IsStateRevision(resourceVersion string) bool {
	return resourceVersion == strconv.Itoa(stateRevision)
}

// stateSource serves reads from a state until etcd is used.
type stateSource struct {
	at     time.Time
	ranges []string
	used   chan struct{} // closed when etcd is used

	mu     sync.Mutex // guards the fields below
	keys   []string   // sorted
	values map[string][]byte
}

func newStateSource(s *state) *stateSource {
	return &stateSource{at: s.at, ranges: s.ranges, used: make(chan struct{}), keys: slices.Sorted(maps.Keys(s.values)), values: s.values}
}

// useEtcd ends the use of the state.
func (s *stateSource) useEtcd() {
	close(s.used)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys, s.values = nil, nil
}

func (s *stateSource) usesEtcd() bool {
	select {
	case <-s.used:
		return true
	default:
		return false
	}
}

// await waits until etcd is used. It returns an error if ctx ended first.
func (s *stateSource) await(ctx context.Context) error {
	select {
	case <-s.used:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// covers reports whether the state contains all keys of an operation.
func (s *stateSource) covers(op clientv3.Op) bool {
	key, end := string(op.KeyBytes()), string(op.RangeBytes())
	return slices.ContainsFunc(s.ranges, func(start string) bool {
		if end == "" {
			return strings.HasPrefix(key, start) || key+"/" == start // k8s.io/apiserver's storage reads the latter to get the revision
		}
		return strings.HasPrefix(key, start) && end != "\x00" && end <= clientv3.GetPrefixRangeEnd(start)
	})
}

// read serves an operation from the state. It returns false if etcd is used.
func (s *stateSource) read(op clientv3.Op) (*clientv3.GetResponse, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usesEtcd() {
		return nil, false
	}
	answer := &clientv3.GetResponse{Header: &etcdserverpb.ResponseHeader{Revision: stateRevision}}
	key, end := string(op.KeyBytes()), string(op.RangeBytes())
	first, _ := slices.BinarySearch(s.keys, key)
	last := first
	if end != "" {
		last, _ = slices.BinarySearch(s.keys, end)
		last = max(first, last)
	} else if first < len(s.keys) && s.keys[first] == key {
		last = first + 1
	}
	answer.Count = int64(last - first)
	if op.IsCountOnly() {
		return answer, true
	}
	if limit := op.Limit(); limit > 0 && answer.Count > limit {
		last, answer.More = first+int(limit), true
	}
	for _, key := range s.keys[first:last] {
		kv := &mvccpb.KeyValue{Key: []byte(key), CreateRevision: stateRevision, ModRevision: stateRevision, Version: 1}
		if !op.IsKeysOnly() {
			kv.Value = s.values[key]
		}
		answer.Kvs = append(answer.Kvs, kv)
	}
	return answer, true
}

// stateKV reads from a state until etcd is used. Before that, writes fail.
type stateKV struct {
	clientv3.KV // of etcd
	source      *stateSource
}

// prepare serves a read from the state, or returns nil if etcd must serve it. A read of a range outside of the state waits
// until etcd is used, because an empty result would count as a deletion of all its objects. Reads of the compaction key of
// k8s.io/apiserver's storage, which does not begin with a slash, also wait: no request depends on them, and they would be
// retried every second.
func (k *stateKV) prepare(ctx context.Context, op clientv3.Op) (*clientv3.GetResponse, error) {
	switch {
	case k.source.usesEtcd():
	case k.source.covers(op):
		if answer, ok := k.source.read(op); ok {
			return answer, nil
		}
	case len(op.RangeBytes()) > 0 || !strings.HasPrefix(string(op.KeyBytes()), "/"):
		if err := k.source.await(ctx); err != nil {
			return nil, err
		}
	}
	if op.Rev() == stateRevision {
		return nil, rpctypes.ErrCompacted
	}
	return nil, nil
}

func (k *stateKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if answer, err := k.prepare(ctx, clientv3.OpGet(key, opts...)); answer != nil || err != nil {
		return answer, err
	}
	return k.KV.Get(ctx, key, opts...)
}

func (k *stateKV) GetStream(ctx context.Context, key string, opts ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	answer, err := k.prepare(ctx, clientv3.OpGet(key, opts...))
	switch {
	case err != nil:
		return nil, err
	case answer == nil:
		return k.KV.GetStream(ctx, key, opts...)
	}
	one := make(chan clientv3.RangeStreamResponse, 1)
	one <- clientv3.RangeStreamResponse{RangeResponse: (*etcdserverpb.RangeResponse)(answer)}
	close(one)
	return one, nil
}

// stateWatcher keeps watches open until etcd is used. It then ends the watches that began at the state.
type stateWatcher struct {
	clientv3.Watcher // of etcd
	source           *stateSource
}

func (w *stateWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	from := clientv3.OpGet(key, opts...).Rev()
	if w.source.usesEtcd() && (from == 0 || from > stateRevision+1) {
		return w.Watcher.Watch(ctx, key, opts...)
	}
	out := make(chan clientv3.WatchResponse, 1)
	go func() {
		defer close(out)
		if w.source.await(ctx) != nil {
			return
		}
		if 0 < from && from <= stateRevision+1 {
			out <- clientv3.WatchResponse{
				Header: &etcdserverpb.ResponseHeader{Revision: stateRevision}, Canceled: true, CompactRevision: stateRevision + 1,
			}
			return
		}
		for response := range w.Watcher.Watch(ctx, key, opts...) {
			if !send(ctx, out, response) {
				return
			}
		}
	}()
	return out
}

// RequestProgress does nothing while the state is used.
func (w *stateWatcher) RequestProgress(ctx context.Context) error {
	if !w.source.usesEtcd() {
		return nil
	}
	return w.Watcher.RequestProgress(ctx)
}
