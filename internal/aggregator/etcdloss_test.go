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
	delay    atomic.Int64 // of the response data, in nanoseconds

	mu    sync.Mutex // guards the following fields
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

// back forwards the server's data, each part after the delay.
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
			_, _ = client.Write(p.data) // a disconnected client closes the server's end too
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
		_, _ = io.Copy(server, client) // until either end closes
		_, _ = server.Close(), client.Close()
	})
	r.back(client, server)
	_, _ = server.Close(), client.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, client)
	delete(r.conns, server)
}

// A replica that alone has lost etcd is not ready, forwards requests that need etcd to another replica, and closes its clients'
// connections. When all replicas have lost etcd, all stay ready: requests that need no etcd succeed, and the rest fail at once.
func TestReplicaWithoutEtcdForwardsToAnotherReplica(t *testing.T) {
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
			t.Errorf("condition %s: %v; want %d %s", what, err, code, text)
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
	// The other replica answers every request, also after the lease has expired.
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
			t.Fatalf("Create at a replica without etcd failed: %v, want no error", err)
		}
		if _, err := client.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{}); err != nil {
			t.Fatalf("consistent Get at a replica without etcd failed: %v, want no error", err)
		}
		run.Pause(ctx, 20*time.Millisecond)
	}
	elsewhere, err := client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	if e := <-elsewhere.ResultChan(); e.Type != apiwatch.Added {
		t.Errorf("first event of a new watch = %v, want ADDED", e)
	}
	elsewhere.Stop()
	now("metrics", two, "/metrics", http.StatusOK, `portico_peer_requests_sent_total{apiservice="v1."}`)
	if _, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); err != nil {
		t.Errorf("SelfSubjectReview at a replica without etcd failed: %v, want no error", err)
	}
	for open := true; open; {
		select {
		case _, open = <-watch.ResultChan():
		case <-ctx.Done():
			t.Fatal("the watch at a replica without etcd is still open, want it closed")
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
				t.Errorf("consistent List without etcd = %v, want ServiceUnavailable with Retry-After", err)
			}
			never := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "never"}}
			if err := client.Post().AbsPath(maps).MaxRetries(0).Body(never).Do(ctx).Error(); !apierrors.IsServiceUnavailable(err) {
				t.Errorf("Create without etcd = %v, want ServiceUnavailable", err)
			}
		}
	}
	for _, stop := range []func() error{stopTwo, stopOne} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// A replica stays ready while the information that another replica has etcd is recent.
func TestEtcdLossIsToleratedWithRecentReplicaState(t *testing.T) {
	lost := fmt.Errorf("lost")
	l := &etcdLoss{lost: func() error { return lost }, alone: func() bool { return true }}
	if !l.tolerated() {
		t.Error("tolerated = false for the only replica, want true")
	}
	l.alone = func() bool { return false }
	if l.tolerated() {
		t.Error("tolerated = true while the state of the other replicas is unknown, want false")
	}
	l.withEtcd = func(context.Context) []string { return []string{"b"} }
	if !l.tolerated() {
		t.Error("tolerated = false while no other replica is known to have etcd, want true")
	}
	if got := l.replicasWithEtcd(); got != nil {
		t.Errorf("replicasWithEtcd before any query = %q, want nil", got)
	}
	l.holders, l.lastQuery = []string{"b"}, time.Now()
	if got := l.replicasWithEtcd(); !slices.Equal(got, l.holders) {
		t.Errorf("replicasWithEtcd = %q, want %q", got, l.holders)
	}
	l.lastQuery = time.Now().Add(-2 * holdersLife)
	if got := l.replicasWithEtcd(); got != nil {
		t.Errorf("replicasWithEtcd after the answers have expired = %q, want nil", got)
	}
	l.aheadSince = time.Now()
	if !l.tolerated() {
		t.Error("tolerated = false at the moment of the loss, want true")
	}
	l.aheadSince = time.Now().Add(-2 * aloneAfter)
	if l.tolerated() {
		t.Error("tolerated = true while another replica has etcd, want false")
	}
	lost, l.lastQuery = nil, time.Now()
	if got := l.replicasWithEtcd(); got != nil {
		t.Errorf("replicasWithEtcd without a loss = %q, want nil", got)
	}
	if l.tolerated() {
		t.Error("tolerated = true without a loss, want false")
	}
}
