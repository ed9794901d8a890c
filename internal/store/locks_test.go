package store

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"golang.org/x/sys/unix"
)

// locked opens a file and locks it with both kinds of lock that etcd uses: bbolt's lock and the lock of the log's segments.
func locked(t *testing.T, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	segment, err := fileutil.LockFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = segment.Close() })
	database, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = database.Close() })
	if err := unix.Flock(int(database.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil && !isHeldByTheSegment(err) {
		t.Fatal(err)
	}
}

// isHeldByTheSegment reports an error for the second lock where both kinds are the same: there the first lock blocks the
// second.
func isHeldByTheSegment(err error) bool {
	return runtime.GOOS != "linux" && errors.Is(err, unix.EWOULDBLOCK)
}

// isLocked reports whether another process is refused either kind of lock.
func isLocked(t *testing.T, name string) bool {
	t.Helper()
	segment, err := fileutil.TryLockFile(name, os.O_RDWR, 0o600)
	switch {
	case errors.Is(err, fileutil.ErrLocked):
		return true
	case err != nil:
		t.Fatal(err)
	}
	if err := segment.Close(); err != nil {
		t.Fatal(err)
	}
	database, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	err = unix.Flock(int(database.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		t.Fatal(err)
	}
	return err != nil
}

func TestUnlockFilesRemovesLocks(t *testing.T) {
	dir := t.TempDir()
	member := filepath.Join(dir, "member")
	inside := []string{filepath.Join(member, "snap", "db"), filepath.Join(member, "wal", "0.wal")}
	outside := []string{filepath.Join(dir, "member-2", "db"), filepath.Join(dir, "lock")}
	for _, name := range append(inside, outside...) {
		locked(t, name)
		if !isLocked(t, name) {
			t.Fatalf("%s is not locked after locked(), want it locked", name)
		}
	}
	// The log renames its segments, and removes segments that are no longer needed.
	renamed := filepath.Join(member, "wal", "1.wal")
	if err := os.Rename(inside[1], renamed); err != nil {
		t.Fatal(err)
	}
	inside[1] = renamed
	removed := filepath.Join(member, "wal", "gone.wal")
	locked(t, removed)
	if err := os.Remove(removed); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(member, link); err != nil {
		t.Fatal(err)
	}
	// The target of a link in the directory is not part of the directory.
	if err := os.Symlink(outside[1], filepath.Join(member, "elsewhere")); err != nil {
		t.Fatal(err)
	}

	if err := unlockFiles(link); err != nil {
		t.Fatal(err)
	}
	for _, name := range inside {
		if isLocked(t, name) {
			t.Errorf("%s is still locked after unlockFiles(), want it unlocked", name)
		}
	}
	for _, name := range outside {
		if !isLocked(t, name) {
			t.Errorf("%s outside the directory is unlocked, want it locked", name)
		}
	}
}

func TestUnlockFilesReportsMissingDirectory(t *testing.T) {
	if err := unlockFiles(filepath.Join(t.TempDir(), "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("unlockFiles() of a missing directory: error = %v, want %v", err, os.ErrNotExist)
	}
}
