package durability

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// command runs one of the program's commands as an administrator of d would, in a pipe.
func (d *frontDoor) command(args ...string) (out, errOut string, err error) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, cmp.Or(d.program, *aggregator), args...)
	cmd.Dir = d.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.dir, "KUBECONFIG=" + filepath.Join(d.dir, "data", "admin.kubeconfig")}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

func (d *frontDoor) mustCommand(args ...string) string {
	d.t.Helper()
	out, errOut, err := d.command(args...)
	if err != nil {
		d.t.Fatalf("command %s failed: %v, want no error\n%s%s", strings.Join(args, " "), err, out, errOut)
	}
	if errOut != "" {
		d.t.Errorf("command %s wrote to standard error: %s, want nothing", strings.Join(args, " "), errOut)
	}
	return out
}

// The steps of docs/backup.md: an encrypted backup with keys of a running front door, and one of its directory after it was
// killed; a restore, which is refused while it would overwrite data. Existing clients continue afterwards.
func TestBackedUpAndRestoredByCommand(t *testing.T) {
	d := newFrontDoor(t)
	d.start()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	configMaps := d.client().CoreV1().ConfigMaps("default")
	create := func(name string) {
		t.Helper()
		if _, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("early")
	if err := os.WriteFile(filepath.Join(d.dir, "passphrase"), []byte("correct horse\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var said struct {
		Bytes     int64
		Encrypted bool
		Manifest  struct{ IncludesKeys bool }
	}
	text := d.mustCommand("backup", "online.backup", "--include-keys", "--passphrase-file", "passphrase", "-o", "json")
	if err := json.Unmarshal([]byte(text), &said); err != nil || !said.Encrypted || !said.Manifest.IncludesKeys {
		t.Errorf("output of backup = %s, %v; want an encrypted backup with keys", text, err)
	}
	info, err := os.Stat(filepath.Join(d.dir, "online.backup"))
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != said.Bytes {
		t.Errorf("backup file = %v, %v; want mode 0600 and the reported size", info, err)
	}
	create("later")
	if _, errOut, err := d.command("backup", "offline.backup", "--data-dir", "data"); err == nil || !strings.Contains(errOut, "in use") {
		t.Errorf("backup of a directory in use = %v, %s; want an error with \"in use\"", err, errOut)
	}
	d.kill()
	d.mustCommand("backup", "offline.backup", "--data-dir", "data")

	if _, errOut, err := d.command("restore", "online.backup", "--data-dir", "data"); err == nil || !strings.Contains(errOut, "--passphrase-file") {
		t.Errorf("restore without the passphrase = %v, %s; want an error that names the flag", err, errOut)
	}
	if _, errOut, err := d.command("restore", "online.backup", "--data-dir", "data", "--passphrase-file", "passphrase"); err == nil || !strings.Contains(errOut, "mv data/etcd ") {
		t.Errorf("restore over existing data = %v, %s; want an error with the mv command", err, errOut)
	}
	// The client is that of before: the authorities and its address are the same.
	restored := func(file string, want map[string]bool, more ...string) {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(d.dir, "before-restore")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(d.dir, "data"), filepath.Join(d.dir, "before-restore")); err != nil {
			t.Fatal(err)
		}
		d.mustCommand(append([]string{"restore", file, "--data-dir", "data"}, more...)...)
		d.begin()
		for name, there := range want {
			d.await("restored", func(ctx context.Context) error {
				_, err := configMaps.Get(ctx, name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) == !there && (err == nil || apierrors.IsNotFound(err)) {
					return nil
				}
				if err == nil {
					t.Fatalf("%s: ConfigMap %s exists after the restore, want it only if the backup has it", file, name)
				}
				return err
			})
		}
		d.kill()
	}
	restored("online.backup", map[string]bool{"early": true, "later": false}, "--passphrase-file", "passphrase")
	// Without keys in the backup, the directory's keys are kept.
	if err := os.Rename(filepath.Join(d.dir, "data", "etcd"), filepath.Join(d.dir, "data", "etcd.before-restore")); err != nil {
		t.Fatal(err)
	}
	d.mustCommand("restore", "offline.backup", "--data-dir", "data")
	d.begin()
	d.await("restored", func(ctx context.Context) error {
		_, err := configMaps.Get(ctx, "later", metav1.GetOptions{})
		return err
	})
}

// An external etcd is backed up without a front door, and becomes the embedded one of another.
func TestAnExternalEtcdIsBackedUp(t *testing.T) {
	c := newCluster(t, 3)
	d := newFrontDoor(t, "--etcd-servers", strings.Join(c.endpoints(), ","))
	d.start()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	configMaps := d.client().CoreV1().ConfigMaps("default")
	if _, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "early"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	d.mustCommand("backup", "through.backup")
	c.stop(0, 1) // two of three, so that the client uses the remaining one
	d.mustCommand("backup", "direct.backup", "--etcd-servers", strings.Join(c.endpoints(), ","))
	for _, file := range []string{"through.backup", "direct.backup"} {
		embedded := newFrontDoor(t)
		for _, name := range []string{file} {
			text, err := os.ReadFile(filepath.Join(d.dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(embedded.dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		embedded.mustCommand("restore", file, "--data-dir", "data")
		embedded.start()
		if _, err := embedded.client().CoreV1().ConfigMaps("default").Get(ctx, "early", metav1.GetOptions{}); err != nil {
			t.Errorf("Get after the restore of %s failed: %v, want no error", file, err)
		}
		embedded.stop()
	}
}
