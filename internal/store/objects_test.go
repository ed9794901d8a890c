package store

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestContentsAreReplacedInOneTransaction(t *testing.T) {
	s, stop := run(t, Config{DataDir: t.TempDir(), Volatile: true})
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	ctx, client := within(t), s.Client()
	put := func(key, value string) {
		t.Helper()
		if _, err := client.KV.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	put("/registry/kept", "1")
	put("/registry/changed", "1")
	put(s.OwnKey("debts/a"), "1")
	put(s.LiveKey("replica"), "1")
	before, err := s.ReadContents(ctx)
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(before))
	if got := strings.Join(names, " "); got != "/portico/debts/a /registry/changed /registry/kept" {
		t.Errorf("contents = %s, want %s", got, "/portico/debts/a /registry/changed /registry/kept")
	}
	put("/registry/changed", "2")
	put("/registry/new", "1")
	put(s.OwnKey("debts/b"), "1")
	events := client.Watch(ctx, "/registry/", clientv3.WithPrefix())
	if err := s.ReplaceContents(ctx, before); err != nil {
		t.Fatal(err)
	}
	seen := <-events
	if len(seen.Events) != 2 || seen.Events[0].Kv.ModRevision != seen.Events[1].Kv.ModRevision {
		t.Errorf("events of the watch = %v, want 2 with one revision", seen.Events)
	}
	// Watch caches have all changes when they have reached the current revision.
	if current, err := client.KV.Get(ctx, "/registry/kept"); err != nil || current.Header.Revision <= seen.Events[0].Kv.ModRevision {
		t.Errorf("Get() = %v, error %v, want a current revision after %d", current, err, seen.Events[0].Kv.ModRevision)
	}
	after, err := s.ReadContents(ctx)
	if err != nil || !maps.EqualFunc(before, after, func(a, b []byte) bool { return string(a) == string(b) }) {
		t.Errorf("contents after ReplaceContents() = %v, error %v, want %v", after, err, before)
	}
	if err := s.ReplaceContents(ctx, before); err != nil {
		t.Errorf("ReplaceContents() without changes failed: %v, want no error", err)
	}
}

func TestKeysExpire(t *testing.T) {
	s, stop := run(t, Config{DataDir: t.TempDir(), Volatile: true})
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	ctx, client := within(t), s.Client()
	for key, seconds := range map[string]int64{"/registry/hour": 3600, "/registry/day": 86400} {
		lease, err := client.Lease.Grant(ctx, seconds)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.KV.Put(ctx, key, "x", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.ExpireKeys(ctx, 2*time.Hour); err != nil {
		t.Fatal(err)
	}
	left, err := s.ReadContents(ctx)
	if err != nil || len(left) != 1 || left["/registry/day"] == nil {
		t.Errorf("contents after ExpireKeys() = %v, error %v, want only /registry/day", left, err)
	}
}

func TestReplaceContentsRequiresVolatileStore(t *testing.T) {
	s, stop := run(t, Config{DataDir: t.TempDir()})
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := s.ReplaceContents(within(t), Contents{}); !errors.Is(err, errNotVolatile) {
		t.Errorf("ReplaceContents() of a store on disk: error = %v, want %v", err, errNotVolatile)
	}
	if err := s.ExpireKeys(within(t), time.Hour); !errors.Is(err, errNotVolatile) {
		t.Errorf("ExpireKeys() of a store on disk: error = %v, want %v", err, errNotVolatile)
	}
}
