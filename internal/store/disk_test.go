package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"
)

// smallDisk is set in a test process that can mount file systems in a private namespace.
const smallDisk = "PORTICO_TEST_SMALL_DISK"

// onSmallDisk runs the calling test again, in a process with a private mount namespace, and there returns a directory on a file
// system of the given size in MiB. In the original process it returns false after that process has ended.
func onSmallDisk(t *testing.T, mib int) (dir string, inside bool) {
	t.Helper()
	if os.Getenv(smallDisk) != "" {
		dir := t.TempDir()
		if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		return dir, true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), smallDisk+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("test in a private mount namespace, which must be permitted, failed: %v, want no error\n%s", err, out)
	}
	return "", false
}

// fillDisk leaves no free block on the file system of dir, and returns a function that makes room again.
func fillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<20); len(block) >= 512; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}

// eventually waits until try succeeds.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(time.Minute)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s within a minute: %v, want no error", what, err)
		}
		<-tick.C
	}
}

// A disk that fills up is detected before etcd fails on it: writes that need space are refused, reads and writes that make room
// are not, and all writes continue when there is room again.
func TestWritesAreRefusedWhileDiskIsFull(t *testing.T) {
	t.Parallel()
	var free atomic.Int64
	free.Store(10 * diskResume)
	s, err := New(Config{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s.disk.stat = func(string) (int64, error) { return free.Load(), nil }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	<-s.Ready()
	client := s.Client()
	for _, key := range []string{"a", "b", "c"} {
		if err := s.Put(within(t), key, []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	lease, err := client.Grant(within(t), 60)
	if err != nil {
		t.Fatal(err)
	}
	set := func(bytes int64) {
		free.Store(bytes)
		eventually(t, "the disk was not looked at", func() error {
			if now, _ := s.disk.measure(); now != bytes {
				return fmt.Errorf("%d bytes", now)
			}
			return nil
		})
	}
	for _, c := range []struct {
		name          string
		free          int64
		writes, makes bool // room, that is: deletions, compaction, leases
	}{
		{"enough", diskResume, true, true},
		{"just the reserve", diskReserve, true, true},
		{"less than the reserve", diskReserve - 1, false, true},
		{"the reserve again", diskReserve, false, true},
		{"next to nothing", diskMinimum - 1, false, false},
		{"enough again", diskResume, true, true},
	} {
		set(c.free)
		_, errTxn := client.Txn(within(t)).Then(clientv3.OpPut("/registry/x", "")).Commit()
		_, errCreate := client.OptimisticPut(within(t), "/registry/y", nil, 1<<30, kubernetes.PutOptions{})
		for what, err := range map[string]error{"put": s.Put(within(t), "d", nil), "transaction": errTxn, "create": errCreate} {
			var full *DiskFullError
			if refused := errors.As(err, &full); refused == c.writes || c.writes && err != nil {
				t.Errorf("%s: %s: error = %v, want it to be accepted %t", c.name, what, err, c.writes)
			}
			if !c.writes && (!errors.Is(err, rpctypes.ErrNoSpace) || !strings.Contains(err.Error(), s.cfg.DataDir)) {
				t.Errorf("%s: %s: error = %v, want ErrNoSpace with the directory %s", c.name, what, err, s.cfg.DataDir)
			}
		}
		if err := s.CheckSpace(within(t)); (err == nil) != c.writes {
			t.Errorf("%s: CheckSpace() error = %v, want success %t", c.name, err, c.writes)
		}
		_, errCompact := client.Txn(within(t)).If(clientv3.Compare(clientv3.Version(compactRevisionKey), "<", 1<<30)).
			Then(clientv3.OpPut(compactRevisionKey, "1")).Else(clientv3.OpGet(compactRevisionKey)).Commit()
		_, errAlive := client.Put(within(t), s.OwnKey(liveKeys)+"x", "", clientv3.WithLease(lease.ID))
		for what, err := range map[string]error{"deletion": s.Delete(within(t), "a"), "compaction": errCompact, "sign of life": errAlive} {
			if (err == nil) != c.makes {
				t.Errorf("%s: %s: error = %v, want success %t", c.name, what, err, c.makes)
			}
		}
		if value, _, err := s.Get(within(t), "b"); err != nil || string(value) != "b" {
			t.Errorf("%s: Get(b) = %q, error %v, want %q", c.name, value, err, "b")
		}
		if _, err := client.KeepAliveOnce(within(t), lease.ID); err != nil {
			t.Errorf("%s: KeepAliveOnce() failed: %v, want no error", c.name, err)
		}
	}
}

// The disk fills up faster than the check detects it: etcd cannot write and ends. The store restarts it inside the process, no
// acknowledged write is lost, and watches miss no event.
func TestEtcdIsRestartedWhenItsDiskIsFull(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	dir, inside := onSmallDisk(t, 400)
	if !inside {
		return
	}
	log, err := zap.NewDevelopment()
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{DataDir: filepath.Join(dir, "etcd"), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	var unseen atomic.Bool // hides the lack of space
	s.disk.stat = func(dir string) (int64, error) {
		if unseen.Load() {
			return 10 * diskResume, nil
		}
		return freeBytes(dir)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-ended:
		t.Fatal(err)
	}
	client := s.Client()
	events := client.Watch(ctx, s.OwnKey("k"), clientv3.WithPrefix(), clientv3.WithRev(1))
	value := make([]byte, 100<<10)
	acknowledged := map[string]bool{}
	put := func(i int) error {
		bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		key := fmt.Sprintf("k%04d", i)
		err := s.Put(bounded, key, value)
		if err == nil {
			acknowledged[s.OwnKey(key)] = true
		}
		return err
	}
	written := 0
	for ; written < 20; written++ {
		if err := put(written); err != nil {
			t.Fatal(err)
		}
	}
	const rounds = 2 // so that a restarted member fails like the first one
	for round := range rounds {
		unseen.Store(true)
		free := fillDisk(t, dir)
		for last := written + 2000; ; written++ {
			if err := put(written); err != nil {
				t.Logf("round %d: %v", round, err)
				written++
				break
			}
			if written == last {
				t.Fatalf("etcd accepted %d writes on a full disk, want a failure", written)
			}
		}
		unseen.Store(false)
		select {
		case err := <-ended:
			t.Fatalf("the store ended with %v while the disk was full, want it to run", err)
		default:
		}
		if err := put(written); err == nil {
			t.Error("a write on a full disk was acknowledged, want an error")
		}
		written++
		free()
		eventually(t, "no write when there is room again", func() error { written++; return put(written) })
		for i := range 20 {
			written++
			if err := put(written); err != nil {
				t.Fatalf("write %d after the restart failed: %v, want no error", i, err)
			}
		}
		written++
	}
	stored, err := client.KV.Get(within(t), s.OwnKey("k"), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]int64{}
	for _, kv := range stored.Kvs {
		kept[string(kv.Key)] = kv.ModRevision
	}
	for key := range acknowledged {
		if kept[key] == 0 {
			t.Errorf("acknowledged key %s is lost, want it stored", key)
		}
	}
	told := map[string]int64{}
	for len(told) < len(kept) {
		select {
		case answer, open := <-events:
			if !open || answer.Err() != nil {
				t.Fatalf("the watch ended with %v, want it open", answer.Err())
			}
			for _, e := range answer.Events {
				if told[string(e.Kv.Key)] != 0 {
					t.Errorf("the watch sent key %s twice, want once", e.Kv.Key)
				}
				told[string(e.Kv.Key)] = e.Kv.ModRevision
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("the watch sent %d of %d events within 20s, want all", len(told), len(kept))
		}
	}
	for key, revision := range told {
		if kept[key] != revision {
			t.Errorf("the watch sent %s at revision %d, want the stored revision %d", key, revision, kept[key])
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the store ended with %v, want no error", err)
	}
	f := files{filepath.Join(dir, "etcd")}
	again, err := startOn(t, f)
	if err != nil {
		t.Fatal(err)
	}
	for key := range acknowledged {
		if answer, err := again.Client().KV.Get(within(t), key); err != nil || len(answer.Kvs) != 1 {
			t.Fatalf("Get(%s) after another start: error = %v, want the acknowledged key", key, err)
		}
	}
}

// A start needs room. On a full or nearly full disk it succeeds nevertheless, and the stored keys are readable.
func TestStartOnFullDiskServesStoredKeys(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	dir, inside := onSmallDisk(t, 400)
	if !inside {
		return
	}
	f := files{filepath.Join(dir, "etcd")}
	f.use(t, "value")
	for _, mib := range []int64{100, 57, 20, 0} {
		t.Run(fmt.Sprintf("%d MiB are left", mib), func(t *testing.T) {
			free := fillDisk(t, dir)
			defer free()
			ballast := filepath.Join(dir, "ballast")
			info, err := os.Stat(ballast)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(ballast, info.Size()-mib<<20); err != nil {
				t.Fatal(err)
			}
			s, err := startOn(t, f)
			if mib == 0 && isDiskFull(err) && !strings.Contains(err.Error(), remedy) {
				// Whether the first block that etcd needs is one that it has just released depends on the order of its
				// goroutines.
				t.Logf("start with 0 MiB left: %v", err)
				if err := os.Truncate(ballast, info.Size()-20<<20); err != nil {
					t.Fatal(err)
				}
				s, err = startOn(t, f)
			}
			if err != nil {
				t.Fatal(err)
			}
			if value, _, err := s.Get(within(t), "k"); err != nil || string(value) != "value" {
				t.Errorf("Get(k) = %q, error %v, want %q", value, err, "value")
			}
			// etcd releases space and takes it again while it starts, and the measured free space is cached for a moment.
			ctx := within(t)
			for {
				before, err := freeBytes(dir)
				if err != nil {
					t.Fatal(err)
				}
				put := s.Put(ctx, "other", nil)
				after, err := freeBytes(dir)
				if err != nil {
					t.Fatal(err)
				}
				if errors.Is(put, rpctypes.ErrNoSpace) || min(before, after) >= diskReserve {
					break
				}
				if ctx.Err() != nil {
					t.Fatalf("a write with %d MiB left: error = %v, want %v", after>>20, put, rpctypes.ErrNoSpace)
				}
			}
		})
	}
}

// A write that failed on a full disk leaves an incomplete record at the end of the log. The next start removes it, although the
// disk has no room for the copy that etcd's repair makes first.
func TestIncompleteRecordIsRemovedOnFullDisk(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	dir, inside := onSmallDisk(t, 400)
	if !inside {
		return
	}
	f := files{filepath.Join(dir, "etcd")}
	f.use(t, "value")
	end := f.tearLog(t)
	free := fillDisk(t, dir)
	if err := repairLog(f.wal(), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(f.segment()); err != nil || info.Size() != end {
		t.Errorf("size of the repaired segment = %v, error %v, want %d", info.Size(), err, end)
	}
	if _, err := os.Lstat(f.segment() + brokenSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Lstat of a copy that did not fit = %v, want %v", err, os.ErrNotExist)
	}
	if free(); t.Failed() {
		return
	}
	s, err := startOn(t, f)
	if err != nil {
		t.Fatal(err)
	}
	if value, _, err := s.Get(within(t), "k"); err != nil || string(value) != "value" {
		t.Errorf("Get(k) = %q, %v, want %q", value, err, "value")
	}
}

// With room on the disk the repair keeps a copy of the segment, and a start serves the keys from before the incomplete record.
func TestLogRepairKeepsCopy(t *testing.T) {
	f := used(t, "value")
	end := f.tearLog(t)
	torn, err := os.ReadFile(f.segment())
	if err != nil {
		t.Fatal(err)
	}
	s, err := startOn(t, f)
	if err != nil {
		t.Fatal(err)
	}
	if value, _, err := s.Get(within(t), "k"); err != nil || string(value) != "value" {
		t.Errorf("Get(k) = %q, %v, want %q", value, err, "value")
	}
	if kept, err := os.ReadFile(f.segment() + brokenSuffix); err != nil || !bytes.Equal(kept, torn) {
		t.Errorf("the copy has %d bytes, %v, want the %d of the segment, whose last record begins at %d", len(kept), err, len(torn), end)
	}
}

// tearLog appends a part of a record to the log, as a write that met a full disk does, and returns where the part begins.
func (f files) tearLog(t *testing.T) int64 {
	t.Helper()
	segment, err := os.OpenFile(f.segment(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer segment.Close()
	end, incomplete := endOfLog(segment)
	if incomplete {
		t.Fatal("the log ends in an incomplete record before the test appends one, want a complete one")
	}
	part := bytes.Repeat([]byte{1}, 200<<10)
	binary.LittleEndian.PutUint64(part, 1<<20) // the length of the whole record
	_, err = segment.WriteAt(part, end)
	if err := errors.Join(err, segment.Truncate(end+int64(len(part)))); err != nil {
		t.Fatal(err)
	}
	return end
}

// A lack of room for a first start is reported before any write.
func TestFirstStartOnFullDiskIsRejectedBeforeAnyWrite(t *testing.T) {
	s, err := New(Config{DataDir: filepath.Join(t.TempDir(), "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	s.disk.stat = func(string) (int64, error) { return diskFirstStart - 1, nil }
	err = s.Run(within(t))
	if err == nil || !strings.Contains(err.Error(), "a first start needs 256 MiB on that disk, and 255 MiB are free") || !strings.Contains(err.Error(), s.cfg.DataDir) {
		t.Errorf("Run() error = %v, want a first start that needs 256 MiB in %s", err, s.cfg.DataDir)
	}
	if _, err := os.Lstat(filepath.Join(s.cfg.DataDir, newMemberDir)); !os.IsNotExist(err) {
		t.Errorf("Lstat of the new member: error = %v, want NotExist", err)
	}
}
