package durability

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
)

const (
	// patience limits every wait for a condition, also on a busy machine.
	patience = 3 * time.Minute
	// lookAgain is how often it is looked at.
	lookAgain = 20 * time.Millisecond
	// requestTimeout is the front door's request timeout. Its client has a slightly longer one.
	requestTimeout = 10 * time.Second
)

// frontDoor is a front door that can be killed and started again on the same data and the same port.
type frontDoor struct {
	t       testing.TB
	dir     string
	port    string
	args    []string
	process *programs.Process
	// program is the binary if it is not the one under test, and admin the administrator's configuration.
	program string
	admin   *rest.Config
	// peers is the relay through which the remaining front doors reach it; nil: directly.
	peers *relay
}

func newFrontDoor(t testing.TB, args ...string) *frontDoor {
	t.Helper()
	dir, err := os.MkdirTemp("", "front-") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	d := &frontDoor{t: t, dir: dir, port: freePort(t)}
	d.args = append([]string{
		"serve", "--data-dir", filepath.Join(d.dir, "data"), "--secure-port", d.port, "--access-log=false",
		"--request-timeout", requestTimeout.String(), "--enable-priority-and-fairness=false",
	}, args...)
	d.finishWithTest()
	return d
}

func (d *frontDoor) finishWithTest() {
	d.t.Cleanup(func() {
		if d.process != nil {
			d.process.Finish(d.t)
			d.process.Show(d.t)
		}
	})
}

// beside makes the front door a replica of a started one: it gets a copy of the shared keys.
func (d *frontDoor) beside(other *frontDoor) {
	d.t.Helper()
	if err := pki.CopyShared(filepath.Join(d.dir, "data", "pki"), filepath.Join(other.dir, "data", "pki")); err != nil {
		d.t.Fatal(err)
	}
}

// start begins a process and returns when it is ready.
func (d *frontDoor) start() {
	d.t.Helper()
	d.begin()
	d.await("ready", func(ctx context.Context) error {
		code, body, err := d.get(ctx, "/readyz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("readyz says %d: %s", code, body)
		}
		return err
	})
}

// begin begins a process and does not wait for it.
func (d *frontDoor) begin() {
	d.t.Helper()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.dir}
	process, err := programs.Start("the front door", d.dir, env, nil, cmp.Or(d.program, *aggregator), d.args...)
	if err != nil {
		d.t.Fatal(err)
	}
	d.process = process
}

// kill is kill -9.
func (d *frontDoor) kill() {
	d.t.Helper()
	d.process.Ended = true
	if _, err := d.process.Stop(os.Kill); err != nil {
		d.t.Fatal(err)
	}
}

// stop ends the process as an operator does.
func (d *frontDoor) stop() {
	d.t.Helper()
	d.process.Ended = true
	code, err := d.process.Stop(os.Interrupt)
	if err != nil || code != 0 {
		d.t.Fatalf("exit status of the front door = %d, %v; want 0:\n%s", code, err, d.process.Output())
	}
}

// await polls until try succeeds.
func (d *frontDoor) await(what string, try func(context.Context) error) {
	d.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout+5*time.Second)
		err := try(ctx)
		cancel()
		if err == nil {
			return
		}
		if d.process != nil {
			select {
			case <-d.process.Exited():
				d.t.Fatalf("the front door ended before the condition was met, want %s:\n%s", what, d.process.Output())
			default:
			}
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("condition not met: want %s after %s: %v", what, patience, err)
		}
		pause(context.Background(), lookAgain)
	}
}

// config is the administrator's.
func (d *frontDoor) config() (*rest.Config, error) {
	if d.admin != nil {
		return rest.CopyConfig(d.admin), nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(d.dir, "data", "admin.kubeconfig"))
	if err != nil {
		return nil, err
	}
	config.QPS, config.Timeout = -1, 0
	return config, nil
}

func (d *frontDoor) client() kubernetes.Interface {
	d.t.Helper()
	config, err := d.config()
	if err != nil {
		d.t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		d.t.Fatal(err)
	}
	return client
}

// address is the one on which it listens.
func (d *frontDoor) address() string { return net.JoinHostPort("127.0.0.1", d.port) }

// get requests a path as the administrator.
func (d *frontDoor) get(ctx context.Context, path string) (code int, body string, err error) {
	config, err := d.config()
	if err != nil {
		return 0, "", err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	return res.StatusCode, string(text), err
}

// unready waits until a check of readyz fails.
func (d *frontDoor) unready(check string) {
	d.t.Helper()
	d.await("unready by "+check, func(ctx context.Context) error {
		code, body, err := d.get(ctx, "/readyz/"+check)
		if err == nil && (code != http.StatusInternalServerError || !strings.Contains(body, "[-]"+check+" failed")) {
			err = fmt.Errorf("the check says %d: %s", code, body)
		}
		return err
	})
}

// freePort is one that servers keep over restarts.
func freePort(t testing.TB) string {
	t.Helper()
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// pause waits between polls, and returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
