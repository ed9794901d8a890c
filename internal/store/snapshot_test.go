package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// save writes a snapshot of a running store, and returns the file.
func save(t *testing.T, s *Store) (string, *Snapshot) {
	t.Helper()
	snapshot, err := s.Snapshot(within(t))
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "snapshot"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(file, snapshot); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Name(), snapshot
}

// A restored directory contains the keys at the beginning of the snapshot, and none of the later ones. A watch from a revision
// that only the old store had ends at once with ErrCompacted.
func TestRestoredDirectoryHasKeysOfSnapshot(t *testing.T) {
	s, stop := run(t, Config{DataDir: t.TempDir()})
	ctx := within(t)
	if err := s.Put(ctx, "kept", []byte("1")); err != nil {
		t.Fatal(err)
	}
	lease, err := s.Client().Grant(ctx, 3600)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{liveKeys + "a-replica-of-before", "leased"} {
		if _, err := s.Client().KV.Put(ctx, s.OwnKey(key), "x", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	file, snapshot := save(t, s)
	if snapshot.Revision < 4 || snapshot.ClusterID == 0 || snapshot.ServerVersion == "" || snapshot.EstimatedSize == 0 {
		t.Errorf("snapshot = %+v, want a revision of at least 4, a cluster ID, a server version and a size", snapshot)
	}
	var last int64
	for range 50 { // more writes than a restore makes
		put, err := s.Client().KV.Put(ctx, s.OwnKey("later"), "1")
		if err != nil {
			t.Fatal(err)
		}
		last = put.Header.Revision
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	dir := filepath.Join(t.TempDir(), "etcd")
	if err := RestoreSnapshot(file, dir, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	if !HoldsEtcd(dir) || HoldsEtcd(t.TempDir()) {
		t.Errorf("HoldsEtcd() of the restored directory = %v, want true, and false for an empty one", HoldsEtcd(dir))
	}
	if err := RestoreSnapshot(file, dir, zap.NewNop()); err == nil {
		t.Error("RestoreSnapshot() over a directory succeeded, want an error")
	}
	restored, _ := run(t, Config{DataDir: dir})
	kept, err := restored.List(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	if string(kept["kept"]) != "1" || kept["later"] != nil {
		t.Errorf("restored keys = %q, want kept and not later", kept)
	}
	if kept[liveKeys+"a-replica-of-before"] != nil {
		t.Error("the restored keys have a replica of the old store, want none")
	}
	if leases, err := restored.Client().TimeToLive(ctx, lease.ID); err != nil || leases.TTL <= 0 || kept["leased"] == nil {
		t.Errorf("lease of the restored key = %v, error %v, want a TTL", leases, err)
	}
	watching := restored.Client().Watch(ctx, restored.OwnKey("kept"), clientv3.WithRev(last))
	if answer := <-watching; !errors.Is(answer.Err(), rpctypes.ErrCompacted) || answer.CompactRevision <= last {
		t.Errorf("watch from revision %d: error = %v, compacted at %d, want %v and a later revision", last, answer.Err(), answer.CompactRevision, rpctypes.ErrCompacted)
	}
	again, err := restored.Client().KV.Put(ctx, restored.OwnKey("later"), "2")
	if err != nil || again.Header.Revision <= snapshot.Revision+RevisionBump {
		t.Errorf("Put() = %v, error %v, want a revision over %d", again, err, snapshot.Revision+RevisionBump)
	}
}

// An invalid or incomplete snapshot creates no directory.
func TestInvalidSnapshotIsRefused(t *testing.T) {
	s, _ := run(t, Config{DataDir: t.TempDir()})
	file, _ := save(t, s)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := append([]byte(nil), whole...)
	changed[len(changed)/2] ^= 1
	for name, content := range map[string][]byte{
		"nothing": nil, "a bit that flipped": changed, "half of it": whole[:len(whole)/2], "without its checksum": whole[:len(whole)-32], "text": []byte("hello, this is no snapshot of anything at all"),
	} {
		t.Run(name, func(t *testing.T) {
			bad, dir := filepath.Join(t.TempDir(), "bad"), filepath.Join(t.TempDir(), "etcd")
			if err := os.WriteFile(bad, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := RestoreSnapshot(bad, dir, zap.NewNop()); err == nil {
				t.Error("RestoreSnapshot() succeeded, want an error")
			}
			left, err := os.ReadDir(filepath.Dir(dir))
			if err != nil || len(left) != 0 {
				t.Errorf("files after a refused snapshot = %v, error %v, want none", left, err)
			}
		})
	}
}

// A snapshot ends with its context, and requires a running store.
func TestSnapshotRequiresRunningStore(t *testing.T) {
	s, stop := run(t, Config{DataDir: t.TempDir()})
	snapshot, err := s.Snapshot(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := snapshot.Close(); err != nil {
		t.Error(err)
	}
	if _, err := snapshot.Read(make([]byte, 1)); err == nil {
		t.Error("Read() of a closed snapshot succeeded, want an error")
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Snapshot(within(t)); !errors.Is(err, ErrNotReady) {
		t.Errorf("Snapshot() of a stopped store: error = %v, want %v", err, ErrNotReady)
	}
}
