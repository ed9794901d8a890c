package aggregator

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portico.dev/internal/run"
)

// relay passes connections to a unix socket on until it is cut.
type relay struct {
	target   string
	listener net.Listener
	delay    atomic.Int64 // of what comes back, in nanoseconds

	mu    sync.Mutex // guards what follows
	cut   bool
	conns map[net.Conn]bool
}

func newRelay(t *testing.T, at, target string) *relay {
	t.Helper()
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{target: target, listener: l, conns: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { r.pass(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.set(true)
		wg.Wait()
	})
	return r
}

// set cuts all connections, or mends the relay.
func (r *relay) set(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
	for c := range r.conns {
		if cut {
			_ = c.Close()
		}
	}
}

func (r *relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut {
		return false
	}
	r.conns[c] = true
	return true
}

// back passes on what the server sends, each part after the delay.
func (r *relay) back(client, server net.Conn) {
	type part struct {
		data []byte
		due  time.Time
	}
	parts := make(chan part, 1<<10)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for p := range parts {
			if wait := time.Until(p.due); wait > 0 {
				<-time.After(wait)
			}
			_, _ = client.Write(p.data) // a client that is gone closes the server's end too
		}
	})
	defer close(parts)
	for {
		buffer := make([]byte, 32<<10)
		n, err := server.Read(buffer)
		parts <- part{buffer[:n], time.Now().Add(time.Duration(r.delay.Load()))}
		if err != nil {
			return
		}
	}
}

func (r *relay) pass(client net.Conn) {
	defer client.Close()
	if !r.keep(client) {
		return
	}
	server, err := net.Dial("unix", r.target)
	if err != nil {
		return
	}
	defer server.Close()
	if !r.keep(server) {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		_, _ = io.Copy(server, client) // until either end goes
		_, _ = server.Close(), client.Close()
	})
	r.back(client, server)
	_, _ = server.Close(), client.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, client)
	delete(r.conns, server)
}

// A replica that alone has lost etcd is not ready, hands what needs etcd to another one, and sends its clients away. When all have lost
// it, all stay ready: what needs no etcd goes on, and what does fails at once.
func TestWhoHasLostEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	sockets, err := os.MkdirTemp("", "p") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	socket, relayed := filepath.Join(sockets, "etcd"), filepath.Join(sockets, "relay")
	stopEtcd := startEtcd(t, socket)
	way := newRelay(t, relayed, socket)
	over := func(at string) func(*Config) { return func(c *Config) { c.EtcdServers = []string{"unix://" + at} } }
	dirOne := t.TempDir()
	one, stopOne := open(t, dirOne, over(socket))
	two, stopTwo := open(t, beside(t, dirOne), over(relayed))
	answers := func(replica *rest.Config, path string, code int, text string) func() error {
		return func() error {
			if got, body := get(t, replica, path); got != code || !strings.Contains(body, text) {
				return fmt.Errorf("%s: %d %s", path, got, body)
			}
			return nil
		}
	}
	now := func(what string, replica *rest.Config, path string, code int, text string) {
		t.Helper()
		if err := answers(replica, path, code, text)(); err != nil {
			t.Errorf("%s: %v; want %d %s", what, err, code, text)
		}
	}
	const maps = "/api/v1/namespaces/default/configmaps"
	eventually(t, "that both know each other", func() error {
		return answers(two, "/metrics", http.StatusOK, `leader_election_master_status{name="portico-aggregator"} 0`)()
	})

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	client := kubernetes.NewForConfigOrDie(two)
	watch, err := client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	way.set(true)
	eventually(t, "not ready alone", answers(two, "/readyz", http.StatusInternalServerError, "[-]etcd failed"))
	now("the other one", one, "/readyz", http.StatusOK, "ok")
	now("alive", two, "/livez", http.StatusOK, "ok")
	now("reads from a cache", two, maps+"?resourceVersion=0", http.StatusOK, "ConfigMapList")
	now("metrics", two, "/metrics", http.StatusOK, "portico_etcd_available 0")
	// Whatever it is asked for, its clients get from the other one, also when its lease has ended.
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + socket}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	for i, since := 0, 0; since < 20; i++ { // requests after its lease has ended
		alive, err := etcd.Get(ctx, "/portico/live/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		switch {
		case err != nil:
			t.Fatal(err)
		case alive.Count == 1:
			since++
		}
		name := fmt.Sprintf("handed-%d", i)
		if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, configMap(name), metav1.CreateOptions{}); err != nil {
			t.Fatalf("a write: %v", err)
		}
		if _, err := client.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{}); err != nil {
			t.Fatalf("a consistent read: %v", err)
		}
		run.Pause(ctx, 20*time.Millisecond)
	}
	elsewhere, err := client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	if e := <-elsewhere.ResultChan(); e.Type != apiwatch.Added {
		t.Errorf("a new watch begins with %v", e)
	}
	elsewhere.Stop()
	now("metrics", two, "/metrics", http.StatusOK, `portico_peer_requests_sent_total{apiservice="v1."}`)
	if _, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); err != nil {
		t.Errorf("a review: %v", err)
	}
	for open := true; open; {
		select {
		case _, open = <-watch.ResultChan():
		case <-ctx.Done():
			t.Fatal("the watch at a replica without etcd goes on for ever")
		}
	}

	way.set(false)
	eventually(t, "ready again", answers(two, "/readyz", http.StatusOK, "ok"))
	now("metrics", two, "/metrics", http.StatusOK, "portico_etcd_available 1")

	if err := stopEtcd(); err != nil {
		t.Fatal(err)
	}
	for _, replica := range []*rest.Config{one, two} {
		eventually(t, "that etcd is lost", answers(replica, "/readyz/etcd", http.StatusInternalServerError, "[-]etcd failed"))
	}
	for range 3 {
		for _, replica := range []*rest.Config{one, two} {
			now("ready without etcd", replica, "/readyz?verbose", http.StatusOK, "[+]etcd tolerated: ok")
			now("its own check", replica, "/readyz/etcd", http.StatusInternalServerError, "[-]etcd failed")
			now("reads from a cache", replica, maps+"?resourceVersion=0", http.StatusOK, "ConfigMapList")
			client := kubernetes.NewForConfigOrDie(replica).CoreV1().RESTClient()
			err := client.Get().AbsPath(maps).MaxRetries(0).Do(ctx).Error()
			if seconds, again := apierrors.SuggestsClientDelay(err); !apierrors.IsServiceUnavailable(err) || !again || seconds == 0 || !strings.Contains(err.Error(), "no member of etcd has answered since") {
				t.Errorf("a consistent read: %v", err)
			}
			never := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "never"}}
			if err := client.Post().AbsPath(maps).MaxRetries(0).Body(never).Do(ctx).Error(); !apierrors.IsServiceUnavailable(err) {
				t.Errorf("a write: %v", err)
			}
		}
	}
	for _, stop := range []func() error{stopTwo, stopOne} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// While it is only known that another replica has etcd since a moment ago, a replica stays ready.
func TestWhenALossIsTolerated(t *testing.T) {
	lost := fmt.Errorf("lost")
	l := &etcdLoss{lost: func() error { return lost }, alone: func() bool { return true }}
	if !l.tolerated() {
		t.Error("the only replica is not ready")
	}
	l.alone = func() bool { return false }
	if l.tolerated() {
		t.Error("what the others have is not known, and the loss is tolerated")
	}
	l.withEtcd = func(context.Context) []string { return []string{"b"} }
	if !l.tolerated() {
		t.Error("no other replica is known to have etcd, and the loss is not tolerated")
	}
	if got := l.replicasWithEtcd(); got != nil {
		t.Errorf("nobody was asked, and %q have etcd", got)
	}
	l.holders, l.asked = []string{"b"}, time.Now()
	if got := l.replicasWithEtcd(); !slices.Equal(got, l.holders) {
		t.Errorf("%q have etcd", got)
	}
	l.asked = time.Now().Add(-2 * holdersLife)
	if got := l.replicasWithEtcd(); got != nil {
		t.Errorf("%q are said to have etcd, long after they were asked", got)
	}
	l.since = time.Now()
	if !l.tolerated() {
		t.Error("not ready at once")
	}
	l.since = time.Now().Add(-2 * aloneAfter)
	if l.tolerated() {
		t.Error("another replica has etcd, and the loss is tolerated")
	}
	lost, l.asked = nil, time.Now()
	if got := l.replicasWithEtcd(); got != nil {
		t.Errorf("nothing is lost, and requests go to %q", got)
	}
	if l.tolerated() {
		t.Error("nothing is lost")
	}
}
