package store

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Without a quorum calls fail at once with a reason, and watches continue at their revision when it returns.
func TestCallsFailAtOnceWithoutQuorum(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	servers, freezers := threeMembers(t)
	s, _ := run(t, Config{Servers: servers})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	client := s.Client()

	first, err := client.KV.Put(ctx, "watched", "before")
	if err != nil {
		t.Fatal(err)
	}
	events := client.Watch(clientv3.WithRequireLeader(ctx), "watched", clientv3.WithRev(first.Header.Revision))
	if batch := <-events; len(batch.Events) != 1 || string(batch.Events[0].Kv.Value) != "before" {
		t.Fatalf("first response of the watch = %+v, want %q", batch, "before")
	}

	changed := s.LostChanged()
	if err := s.Lost(); err != nil {
		t.Fatal(err)
	}
	for _, both := range freezers[:2] {
		for _, f := range both {
			f.freeze()
		}
	}
	if err := s.CheckSpace(ctx); err != nil || ctx.Err() != nil {
		t.Errorf("CheckSpace() = %v, context %v, want nil after %s", err, ctx.Err(), externalSpaceTimeout)
	}
	_, err = client.KV.Put(ctx, "watched", "during") // ctx leaves it two minutes
	lost := (*QuorumError)(nil)
	if !errors.As(err, &lost) || !lost.Begun {
		t.Fatalf("write that was under way: error = %v, want a QuorumError with Begun", err)
	}
	select {
	case <-changed:
	default:
		t.Error("LostChanged() did not fire after the quorum was lost, want one change")
	}
	for name, call := range map[string]func() error{
		"get":    func() error { _, err := client.KV.Get(ctx, "watched"); return err },
		"put":    func() error { _, err := client.KV.Put(ctx, "watched", "never"); return err },
		"delete": func() error { _, err := client.KV.Delete(ctx, "watched"); return err },
		"txn": func() error {
			_, err := client.KV.Txn(ctx).If(clientv3.Compare(clientv3.Version("watched"), ">", 0)).Then(clientv3.OpPut("watched", "never")).Else().Commit()
			return err
		},
		"own keys": func() error { _, _, err := s.Get(ctx, "k"); return err },
		"check":    func() error { return s.Check(ctx) },
		"lost":     func() error { return s.Lost() },
	} {
		if err := call(); !errors.As(err, &lost) || lost.Begun {
			t.Errorf("%s: error = %v, want a QuorumError without Begun", name, err)
		}
	}

	for _, both := range freezers[:2] {
		for _, f := range both {
			f.thaw()
		}
	}
	for s.Lost() != nil {
		select {
		case <-s.LostChanged():
		case <-time.After(100 * time.Millisecond): // it can change between the two calls
		case <-ctx.Done():
			t.Fatal("Lost() is not nil within two minutes after the members returned, want nil")
		}
	}
	for {
		if _, err = client.KV.Put(ctx, "watched", "after"); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("Put() after the members returned failed within two minutes: %v, want no error", err)
		}
	}
	for got := ""; got != "after"; {
		select {
		case batch, open := <-events:
			if !open || batch.Err() != nil {
				t.Fatalf("the watch ended with %v, want it open", batch.Err())
			}
			for _, e := range batch.Events {
				if got = string(e.Kv.Value); got == "never" || got == "before" {
					t.Errorf("value in the watch = %q, want neither never nor a second before", got)
				}
			}
		case <-ctx.Done():
			t.Fatalf("the watch has no event since the quorum returned, want %q", "after")
		}
	}
}

// scriptedWatcher is a member whose watches end as the test requires.
type scriptedWatcher struct {
	clientv3.Watcher
	began chan int64 // the revision of each watch
	now   chan clientv3.WatchResponse
}

func (w *scriptedWatcher) Watch(_ context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	w.began <- clientv3.OpGet(key, opts...).Rev()
	return w.now
}

// Members without a leader end each watch. The watch is resumed after the last event, and other ends are passed on.
func TestWatchIsResumedAfterLeaderLoss(t *testing.T) {
	t.Parallel()
	real, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://127.0.0.1:1"}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = real.Close() })
	member := &scriptedWatcher{began: make(chan int64, 2), now: make(chan clientv3.WatchResponse)}
	w := &resumingWatcher{Watcher: member, quorum: newQuorum(zap.NewNop())}
	events := w.Watch(t.Context(), "k", clientv3.WithRev(5))
	if rev := <-member.began; rev != 5 {
		t.Fatalf("revision of the first watch = %d, want 5", rev)
	}
	header := &pb.ResponseHeader{Revision: 90} // of the member, which is ahead
	at := func(revision int64) *clientv3.Event {
		return &clientv3.Event{Kv: &mvccpb.KeyValue{ModRevision: revision}}
	}
	member.now <- clientv3.WatchResponse{Header: header, Events: []*clientv3.Event{at(6), at(7)}}
	if got := <-events; len(got.Events) != 2 {
		t.Fatalf("response = %+v, want 2 events", got)
	}
	member.now <- clientv3.WatchResponse{Header: header, Canceled: true, CancelReason: rpctypes.ErrNoLeader.Error()}
	if rev := <-member.began; rev != 8 {
		t.Errorf("revision of the resumed watch = %d, want 8", rev)
	}
	member.now <- clientv3.WatchResponse{Header: header, Canceled: true, CompactRevision: 9}
	if got := <-events; !errors.Is(got.Err(), rpctypes.ErrCompacted) {
		t.Errorf("response = %+v, error %v, want %v", got, got.Err(), rpctypes.ErrCompacted)
	}
	if _, open := <-events; open {
		t.Error("the watch is open after its end, want it closed")
	}
}
