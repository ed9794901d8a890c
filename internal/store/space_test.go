package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// fill writes one key repeatedly until the store is full, and returns the error.
func fill(t *testing.T, s *Store) error {
	t.Helper()
	for range 100 {
		if err := s.Put(within(t), "ballast", bytes.Repeat([]byte{1}, 1<<20)); err != nil {
			return err
		}
	}
	t.Fatal("100 MiB were written, want an error for lack of room")
	return nil
}

// compact removes all versions but the last, as the API's storage does after a while.
func compact(t *testing.T, s *Store) {
	t.Helper()
	now, err := s.Client().KV.Get(within(t), ownPrefix)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client().Compact(within(t), now.Header.Revision); err != nil {
		t.Fatal(err)
	}
}

func TestFullStoreIsReportedAndRecovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const quota = 8 << 20
	s, stop := run(t, Config{DataDir: dir, QuotaBytes: 32 * quota})
	if err := s.CheckSpace(within(t)); err != nil {
		t.Fatalf("CheckSpace() of an empty store failed: %v, want no error", err)
	}
	// The file of a database grows by 16 MiB at a time, so that etcd can be full with almost no data, and a start would make
	// room. The data here exceeds the quota.
	for range 2 * quota >> 20 {
		if err := s.Put(within(t), "ballast", bytes.Repeat([]byte{1}, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	s, stop = run(t, Config{DataDir: dir, QuotaBytes: quota})
	if err := fill(t, s); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("Put() in a full store: error = %v, want %v", err, rpctypes.ErrNoSpace)
	}
	if err := s.CheckSpace(within(t)); !errors.Is(err, ErrFull) {
		t.Errorf("CheckSpace() of a full store: error = %v, want %v", err, ErrFull)
	}
	if err := s.Check(within(t)); err != nil {
		t.Errorf("Check() of a full store failed: %v, want no error", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	t.Run("is full after a restart, and its replicas do not wait for ever", func(t *testing.T) {
		s, stop := run(t, Config{DataDir: dir, QuotaBytes: quota})
		if err := s.CheckSpace(within(t)); !errors.Is(err, ErrFull) {
			t.Errorf("CheckSpace() after a restart: error = %v, want %v", err, ErrFull)
		}
		r := s.Replicas("me")
		ended := make(chan error, 1)
		ctx := within(t)
		go func() { ended <- r.Run(ctx) }()
		select {
		case <-r.Ready():
		case <-time.After(20 * time.Second):
			t.Error("the replica is not ready within 20s, want Ready although its key cannot be written")
		}
		if _, leads := r.Received(); leads {
			t.Error("the replica leads without a key, want no leader")
		}
		compact(t, s)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("makes room for itself at the next start", func(t *testing.T) {
		before := size(t, dir)
		s, stop := run(t, Config{DataDir: dir, QuotaBytes: quota})
		if err := s.CheckSpace(within(t)); err != nil {
			t.Error(err)
		}
		if err := s.Put(within(t), "k", nil); err != nil {
			t.Error(err)
		}
		if after := size(t, dir); after > before/2 {
			t.Errorf("size of the database after a start = %d bytes, want at most half of %d", after, before)
		}
		if err := fill(t, s); !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Fatalf("Put() in a full store: error = %v, want %v", err, rpctypes.ErrNoSpace)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("has room with a larger quota", func(t *testing.T) {
		s, _ := run(t, Config{DataDir: dir, QuotaBytes: 32 * quota})
		if err := errors.Join(s.CheckSpace(within(t)), s.Put(within(t), "k", nil)); err != nil {
			t.Error(err)
		}
	})
}

func size(t *testing.T, dir string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// A damaged log is not repaired by a guess, and the error gives the next step.
func TestDamagedLogIsReportedAndNotRepaired(t *testing.T) {
	dir := t.TempDir()
	s, stop := run(t, Config{DataDir: dir})
	for i := range 20 {
		if err := s.Put(within(t), fmt.Sprint(i), bytes.Repeat([]byte{1}, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("log segments = %v, error %v, want 1", logs, err)
	}
	file, err := os.OpenFile(logs[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte("damage"), 10_000); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	damaged, err := New(Config{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := damaged.Run(within(t)); err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "restore") {
		t.Errorf("Run() with a damaged log: error = %v, want one that contains %q and %q", err, dir, "restore")
	}
}
