package durability

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// socketRestarts is how often a front door is restarted behind its socket.
const socketRestarts = 5

// A single front door is restarted, upgraded, and made the first of several behind a socket that a service manager holds for
// it. Clients wait in between. No request fails, with any version of HTTP.
func TestRestartsBehindASocket(t *testing.T) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	d := &behindSocket{t: t, dir: t.TempDir(), socket: socket.(*net.TCPListener)}
	d.start()
	defer d.stop()
	clients := newSocketClients(t, d)
	for i := range socketRestarts {
		var flags []string
		if i >= 2 { // it becomes the first of several
			flags = append(flags, "--cluster-init", "--etcd-peer-port", freePort(t))
		}
		if i == socketRestarts-1 { // and one again
			flags = nil
		}
		before := clients.served.Load()
		d.stop()
		d.start(flags...)
		clients.awaitMore(before)
	}
	clients.stop()
	t.Logf("%d requests, the slowest took %s", clients.served.Load(), time.Duration(clients.slowest.Load()).Round(time.Millisecond))
}

// behindSocket is a front door with a socket that outlives it.
type behindSocket struct {
	t       *testing.T
	dir     string
	socket  *net.TCPListener
	process *exec.Cmd
	log     bytes.Buffer
	// program is the binary if it is not the one under test.
	program string
}

// start returns when the front door is ready.
func (d *behindSocket) start(flags ...string) {
	d.t.Helper()
	file, err := d.socket.File()
	if err != nil {
		d.t.Fatal(err)
	}
	defer file.Close()
	// LISTEN_PID is the PID of the program, which replaces the shell.
	args := append([]string{"-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"`, cmp.Or(d.program, *aggregator), "serve", "--data-dir", d.dir, "--access-log=false", "--shutdown-delay-duration", "1s"}, flags...)
	d.process = exec.Command("sh", args...)
	d.process.ExtraFiles = []*os.File{file}
	d.process.Stderr, d.process.Stdout = &d.log, &d.log
	if err := d.process.Start(); err != nil {
		d.t.Fatal(err)
	}
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}, Timeout: patience}
	resp, err := insecure.Get("https://" + d.socket.Addr().String() + "/readyz") // waits in the socket
	if err != nil {
		d.t.Fatalf("GET /readyz after a start failed: %v, want no error\n%s", err, d.log.String())
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		d.t.Fatalf("first response after a start = %s, want 200", resp.Status)
	}
}

func (d *behindSocket) stop() {
	d.t.Helper()
	if d.process == nil {
		return
	}
	if err := d.process.Process.Signal(os.Interrupt); err != nil {
		d.t.Error(err)
	}
	if err := d.process.Wait(); err != nil {
		d.t.Errorf("front door exited with %v, want status 0\n%s", err, d.log.String())
	}
	d.process = nil
}

// socketClients send one request after the other, each client over separate connections, without retries.
type socketClients struct {
	t       *testing.T
	cancel  context.CancelFunc
	work    sync.WaitGroup
	served  atomic.Int64
	slowest atomic.Int64
}

func newSocketClients(t *testing.T, d *behindSocket) *socketClients {
	t.Helper()
	kubeconfig := filepath.Join(d.dir, "admin.kubeconfig")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for { // it is written once the front door answers
		if _, err := os.Stat(kubeconfig); err == nil {
			break
		}
		if pause(ctx, 10*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("%s was not written in time, want the kubeconfig", kubeconfig)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	clients, stop := context.WithCancel(context.Background())
	c := &socketClients{t: t, cancel: stop}
	for i, kind := range []string{"reads over HTTP/2", "writes over HTTP/2", "reads over HTTP/1.1", "writes over HTTP/1.1", "reads over new connections"} {
		own := rest.CopyConfig(config)
		if i >= 2 {
			own.NextProtos = []string{"http/1.1"}
		}
		client, err := rest.HTTPClientFor(own)
		if err != nil {
			t.Fatal(err)
		}
		method := http.MethodGet
		if i == 1 || i == 3 {
			method = http.MethodPost
		}
		c.work.Go(func() { c.run(clients, kind, client, method, config.Host, i == 4) })
	}
	t.Cleanup(c.stop)
	return c
}

func (c *socketClients) run(ctx context.Context, kind string, client *http.Client, method, host string, fresh bool) {
	defer client.CloseIdleConnections()
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		err := send(ctx, client, method, host+"/api/v1/namespaces/default/configmaps", fmt.Sprintf("%s-%d", names.Replace(kind), n))
		if errors.Is(err, context.Canceled) {
			return
		}
		if err != nil {
			c.t.Errorf("request %s failed after %s: %v, want no error", kind, time.Since(began).Round(time.Millisecond), err)
		}
		c.served.Add(1)
		c.slowest.Store(max(c.slowest.Load(), int64(time.Since(began)))) // approximately the slowest: concurrent clients do not synchronize
		if fresh {
			client.CloseIdleConnections()
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond): // requests at this rate, of each client
		}
	}
}

// names makes names of objects of the kinds of clients.
var names = strings.NewReplacer(" ", "-", "/", "-", "HTTP", "http")

func send(ctx context.Context, client *http.Client, method, url, name string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var body io.Reader
	if method == http.MethodPost {
		body = bytes.NewReader(fmt.Appendf(nil, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q}}`, name))
	} else {
		url += "?limit=1"
	}
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}

// awaitMore waits until every client has certainly been served again.
func (c *socketClients) awaitMore(before int64) {
	c.t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for c.served.Load() < before+200 {
		select {
		case <-tick.C:
		case <-deadline:
			c.t.Fatal("fewer than 200 requests were served within a minute, want the clients served again")
		}
	}
}

func (c *socketClients) stop() {
	c.cancel()
	c.work.Wait()
}
