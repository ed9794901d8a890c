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

// stateRevision is the revision of all that is read from a state. No object in etcd has it, so whatever was read from a state can
// be told from what was read from etcd. Nothing can go on from it in etcd: neither watches nor pages of lists. They are
// told that it is compacted, and list again.
const stateRevision = 1

// IsStateRevision reports whether a resourceVersion is that of all that was read from a state snapshot.
func IsStateRevision(resourceVersion string) bool {
	return resourceVersion == strconv.Itoa(stateRevision)
}

// stateSource answers reads from a state until etcd is used.
type stateSource struct {
	at     time.Time
	ranges []string
	used   chan struct{} // closed when etcd is used

	mu     sync.Mutex // guards what follows
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

// await returns when etcd is used, and an error if ctx ended first.
func (s *stateSource) await(ctx context.Context) error {
	select {
	case <-s.used:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// has reports whether the state has all keys that an operation is about.
func (s *stateSource) has(op clientv3.Op) bool {
	key, end := string(op.KeyBytes()), string(op.RangeBytes())
	return slices.ContainsFunc(s.ranges, func(start string) bool {
		if end == "" {
			return strings.HasPrefix(key, start) || key+"/" == start // the library asks for the latter to learn the revision
		}
		return strings.HasPrefix(key, start) && end != "\x00" && end <= clientv3.GetPrefixRangeEnd(start)
	})
}

// read answers an operation that the state has. It is false when etcd is used.
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

// stateKV reads from a state until etcd is used. It writes nothing before.
type stateKV struct {
	clientv3.KV // of etcd
	source      *stateSource
}

// prepare answers a read from the state, or returns nil when etcd is to be asked. A read of a range that the state does not have waits
// until then: were it empty, whoever reads it would take all that is in it for deleted. So does a read of the key by which the library
// compacts, which has no slash: no request waits for that, and it would be tried again every second.
func (k *stateKV) prepare(ctx context.Context, op clientv3.Op) (*clientv3.GetResponse, error) {
	switch {
	case k.source.usesEtcd():
	case k.source.has(op):
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

// stateWatcher keeps watches open until etcd is used, and ends then those that began at the state.
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

// RequestProgress has nothing to ask for while the state is used.
func (w *stateWatcher) RequestProgress(ctx context.Context) error {
	if !w.source.usesEtcd() {
		return nil
	}
	return w.Watcher.RequestProgress(ctx)
}
