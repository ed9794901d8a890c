package durability

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// smallDisk is set in a test process that may mount file systems in a separate mount namespace.
const smallDisk = "PORTICO_TEST_SMALL_DISK"

// onSmallDisk runs the calling test once more in a process with a separate mount namespace, and there returns a directory on a
// file system of the given size. In the original process it returns false after that process has ended.
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
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run=^"+t.Name()+"$", "-test.v", "-aggregator="+*aggregator)
	cmd.Env = append(os.Environ(), smallDisk+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("test in a separate mount namespace, which this machine must permit: %v, want no error\n%s", err, out)
	}
	t.Logf("%s", out)
	return "", false
}

// fillDisk uses every free block of dir's file system, most of them at once. The returned function frees them.
func fillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	for most := int64(fs.Bavail) * fs.Bsize; most > 0; most -= 1 << 20 { // other processes write at the same time
		if err := syscall.Fallocate(int(f.Fd()), 0, 0, most); err == nil {
			break
		} else if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
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

// hadToBeRestarted is in a refusal while no etcd runs, because the one before could not write.
const hadToBeRestarted = "etcd had to be restarted"

// The disk of the embedded etcd and the audit log fills up during writes and watches. The front door does not exit: writes get
// 507, reads and requests to a backend succeed, and writes succeed when there is space again, all in one process.
func TestAFullDisk(t *testing.T) {
	dir, inside := onSmallDisk(t, 700)
	if !inside {
		return
	}
	t.Setenv("TMPDIR", dir)
	d := newFrontDoor(t, "--etcd-compaction-interval", "0", "--etcd-unix-socket", "etcd.sock", "--audit-log-path", filepath.Join(dir, "audit.log"))
	d.args[0] = "dev" // with an extension server behind it
	d.start()
	pid := d.process.PID()
	proxied := func(ctx context.Context) error { return d.answers(ctx, "/apis/metrics.k8s.io/v1beta1/nodes") }
	d.await("proxying", proxied)
	r := record(t, d.client(), 2, 2)
	configMaps := d.client().CoreV1().ConfigMaps("default")
	create := func(ctx context.Context) error {
		_, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "more-"}}, metav1.CreateOptions{})
		return err
	}
	for round := range 3 {
		r.until(60)
		free := fillDisk(t, dir)
		waits := false // etcd met the full disk, and cannot run before there is room
		d.await("refusing writes", func(ctx context.Context) error {
			err := create(ctx)
			if !isFull(err) || !strings.Contains(err.Error(), "the disk of the embedded etcd is full") {
				return fmt.Errorf("a write on a full disk: %v", err)
			}
			waits = strings.Contains(err.Error(), hadToBeRestarted)
			return nil
		})
		d.unready("etcd-space")
		d.await("saying which disk is full", func(ctx context.Context) error {
			etcd, err := d.client().CoreV1().ComponentStatuses().Get(ctx, "etcd-0", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if c := etcd.Conditions[0]; c.Status != corev1.ConditionFalse || !strings.Contains(c.Error, filepath.Join("data", "etcd")) {
				return fmt.Errorf("etcd-0 is said to be %s: %s%s", c.Status, c.Message, c.Error)
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if _, body, err := d.get(ctx, "/readyz/etcd-space"); err != nil {
			t.Error(err)
		} else {
			t.Logf("readyz: %s", body)
		}
		for range 20 {
			if !waits {
				d.await("reading", func(ctx context.Context) error {
					code, body, err := d.get(ctx, "/api/v1/namespaces/default/configmaps")
					if err == nil && code == http.StatusInsufficientStorage && strings.Contains(body, hadToBeRestarted) {
						waits = true // requests that began before the disk was full were stored after the first refusal
						return nil
					}
					if err == nil && code != http.StatusOK {
						err = fmt.Errorf("%d: %s", code, body)
					}
					return err
				})
			}
			if err := proxied(ctx); err != nil {
				t.Errorf("round %d: request to a backend = %v, want no error", round, err)
			}
		}
		cancel()
		if waits {
			t.Logf("round %d: etcd met the full disk, waits for room, and cannot be read before", round)
		}
		free()
		d.await("accepting writes", create)
		d.await("ready", func(ctx context.Context) error { return d.answers(ctx, "/readyz") })
	}
	r.until(60)
	if now := d.process.PID(); now != pid {
		t.Errorf("PID of the front door = %d, want %d", now, pid)
	}
	t.Logf("etcd met the full disk before it was seen, and was restarted, %d times", strings.Count(d.process.Output(), "stopped after a disk error; restarting it"))
	r.verdict("unix://" + filepath.Join(d.dir, "etcd.sock"))
	d.stop()
}

// answers is whether a path is answered with 200.
func (d *frontDoor) answers(ctx context.Context, path string) error {
	code, body, err := d.get(ctx, path)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s says %d: %s", path, code, body)
	}
	return err
}
