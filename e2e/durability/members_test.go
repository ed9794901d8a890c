package durability

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// memberWriter creates ConfigMaps without a pause, at one front door after another, and records the acknowledged ones.
type memberWriter struct {
	mu   sync.Mutex // guards the following fields
	at   []kubernetes.Interface
	made []string
	stop context.CancelFunc
	work sync.WaitGroup
}

func startMemberWriter(t *testing.T, at ...*frontDoor) *memberWriter {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &memberWriter{stop: cancel}
	w.use(at...)
	w.work.Go(func() { w.run(ctx) })
	t.Cleanup(w.end)
	return w
}

// use changes the front doors that are written to.
func (w *memberWriter) use(at ...*frontDoor) {
	var clients []kubernetes.Interface
	for _, d := range at {
		clients = append(clients, d.client())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = clients
}

func (w *memberWriter) end() {
	w.stop()
	w.work.Wait()
}

func (w *memberWriter) run(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		w.mu.Lock()
		client := w.at[i%len(w.at)]
		w.mu.Unlock()
		bounded, cancel := context.WithTimeout(ctx, requestTimeout)
		name := fmt.Sprintf("written-%06d", i)
		_, err := client.CoreV1().ConfigMaps("default").Create(bounded, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		cancel()
		if err == nil {
			w.mu.Lock()
			w.made = append(w.made, name)
			w.mu.Unlock()
		}
		pause(ctx, lookAgain)
	}
}

// acknowledged returns the names that were written so far.
func (w *memberWriter) acknowledged() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.made)
}

// goesOn waits until so many more were written.
func (w *memberWriter) goesOn(d *frontDoor, more int) {
	d.t.Helper()
	before := len(w.acknowledged())
	d.await("written to", func(context.Context) error {
		if n := len(w.acknowledged()) - before; n < more {
			return fmt.Errorf("%d of %d", n, more)
		}
		return nil
	})
}

// has checks that all of these are at a front door.
func (d *frontDoor) has(names []string) {
	d.t.Helper()
	list, err := d.client().CoreV1().ConfigMaps("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	there := map[string]bool{}
	for _, c := range list.Items {
		there[c.Name] = true
	}
	for _, name := range names {
		if !there[name] {
			d.t.Errorf("ConfigMap %s was acknowledged and does not exist, want it stored", name)
		}
	}
}

// data is the data directory of a front door.
func (d *frontDoor) data() string { return filepath.Join(d.dir, "data") }

// run runs a command of the program.
func (d *frontDoor) run(args ...string) (string, error) {
	cmd := exec.Command(*aggregator, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.dir, "KUBECONFIG=" + filepath.Join(d.data(), "admin.kubeconfig")}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// runs is run until it succeeds: etcd changes its members one at a time, some seconds apart.
func (d *frontDoor) runs(args ...string) string {
	d.t.Helper()
	var out string
	d.await(args[0]+" "+args[1], func(context.Context) (err error) {
		if out, err = d.run(args...); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	return out
}

// url is the address for joining replicas.
func (d *frontDoor) url() string {
	config, err := d.config()
	if err != nil {
		d.t.Fatal(err)
	}
	return config.Host
}

// newMember is a front door with a port for other members.
func newMember(t *testing.T) *frontDoor { return newFrontDoor(t, "--etcd-peer-port", freePort(t)) }

// joining is a front door that joins another one.
func joining(t *testing.T, other *frontDoor) *frontDoor {
	t.Helper()
	d := newMember(t)
	token := filepath.Join(d.dir, "token")
	if err := os.WriteFile(token, []byte(other.runs("token", "create", "--ttl", "10m")), 0o600); err != nil {
		t.Fatal(err)
	}
	d.args = append(d.args, "--join", other.url(), "--join-token-file", token)
	return d
}

// isReady waits until a front door that was begun is ready.
func (d *frontDoor) isReady() {
	d.t.Helper()
	d.await("ready", func(ctx context.Context) error {
		code, body, err := d.get(ctx, "/readyz")
		if err == nil && code != 200 {
			err = errors.New(body)
		}
		return err
	})
}

// with starts the front door with further flags, and without the flags that have one of the prefixes.
func (d *frontDoor) with(further []string, without ...string) {
	var args []string
	for i := 0; i < len(d.args); i++ {
		if slices.Contains(without, d.args[i]) {
			if d.args[i] != "--cluster-init" {
				i++ // its value
			}
			continue
		}
		args = append(args, d.args[i])
	}
	d.args = append(args, further...)
}

// The life of an etcd inside three front doors, while clients write: a front door that ran alone becomes the first, two join at once, one dies and
// is replaced, a quorum is lost and the rest reset, and in the end one runs alone again. Nothing that was acknowledged is lost.
func TestFrontDoorsJoinEachOther(t *testing.T) {
	a := newMember(t)
	a.start()
	w := startMemberWriter(t, a)
	w.goesOn(a, 20)

	a.stop()
	a.with([]string{"--cluster-init"})
	began := time.Now()
	a.start()
	t.Logf("the one that ran alone was ready again, as the first of several, after %s", time.Since(began).Round(time.Millisecond))
	a.has(w.acknowledged())
	a.await("open for others", func(context.Context) error {
		info, err := os.Stat(filepath.Join(a.data(), "join-token"))
		if err == nil && info.Mode().Perm() != 0o600 {
			err = fmt.Errorf("the first token has mode %s", info.Mode())
		}
		return err
	})

	began = time.Now()
	b, c := joining(t, a), joining(t, a)
	b.begin()
	c.begin()
	b.isReady()
	c.isReady()
	t.Logf("two that joined at once were ready after %s", time.Since(began).Round(time.Millisecond))
	w.use(a, b, c)
	w.goesOn(c, 30)
	for _, d := range []*frontDoor{a, b, c} {
		d.has(w.acknowledged())
	}
	a.await("a member of three that are alive, of which one leads", func(context.Context) error {
		list := a.runs("member", "list")
		if strings.Count(list, "true") != 3 || strings.Count(list, "leader") != 1 {
			return fmt.Errorf("members:\n%s", list)
		}
		return nil
	})

	// A member is one after a restart without its flags.
	b.stop()
	b.with(nil, "--join", "--join-token-file")
	b.start()

	// A machine is lost, and replaced by another one.
	c.kill()
	w.use(a, b)
	w.goesOn(b, 20)
	var lost string
	a.await("knowing which member is lost", func(context.Context) error {
		list := a.runs("member", "list")
		if strings.Count(list, "true") != 2 || strings.Count(list, "false") != 1 { // one that is slow to answer is not lost
			return fmt.Errorf("members:\n%s", list)
		}
		for line := range strings.SplitSeq(list, "\n") {
			if strings.Contains(line, "false") {
				lost = strings.Fields(line)[1]
			}
		}
		return nil
	})
	b.runs("member", "remove", lost, "--data-dir", b.data())
	c = joining(t, b)
	c.start()
	w.use(a, b, c)
	w.goesOn(c, 20)
	w.end()
	for _, d := range []*frontDoor{a, b, c} {
		d.has(w.acknowledged())
	}
	backup := filepath.Join(c.dir, "backup")
	if out, err := c.run("backup", backup); err != nil {
		t.Errorf("backup at a member that joined = %v: %s; want no error", err, out)
	}

	// Two of three are lost for good.
	b.kill()
	c.kill()
	a.unready("etcd")
	_, err := a.client().CoreV1().ConfigMaps("default").Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}}, metav1.CreateOptions{})
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "etcd does not answer") {
		t.Errorf("Create without a quorum = %v, want ServiceUnavailable with \"etcd does not answer\"", err)
	}
	if code, body, err := a.get(context.Background(), "/readyz"); err != nil || code != 200 {
		t.Errorf("GET /readyz of the last replica = %d, %v\n%s\nwant 200", code, err, body)
	}
	a.stop()
	if out, err := a.run(append(slices.Clone(a.args), "--cluster-reset")...); err != nil {
		t.Fatalf("start with --cluster-reset = %v: %s; want no error", err, out)
	}
	a.start()
	a.has(w.acknowledged())
	if list := a.runs("member", "list"); strings.Count(list, "\n") != 1 {
		t.Errorf("members after the reset =\n%s\nwant 1", list)
	}

	// One that is alone runs as before.
	a.stop()
	a.with(nil, "--cluster-init")
	a.start()
	a.has(w.acknowledged())
	if out, err := a.run("member", "list"); err == nil || !strings.Contains(out, "not a member of a cluster") {
		t.Errorf("member list of a single front door = %v\n%s\nwant an error", err, out)
	}
	w = startMemberWriter(t, a)
	w.goesOn(a, 10)
	w.end()
	a.stop()
}
