package metricsapi

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"portico.dev/internal/pki"
)

const token = "kubelets-know-it"

// fakeKubelet reports a steady rate since its creation. A test can make it fail.
type fakeKubelet struct {
	name string
	port int

	mu       sync.Mutex
	cores    float64
	pods     []string // namespace/pod, one container each
	began    time.Time
	answer   func(w http.ResponseWriter) // instead of metrics
	requests int
	path     string
}

func (k *fakeKubelet) set(change func(k *fakeKubelet)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(k)
}

func (k *fakeKubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests++
	k.path = r.URL.Path
	switch {
	case k.answer != nil:
		k.answer(w)
		return
	case r.Header.Get("Authorization") != "Bearer "+token:
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	now := time.Now().Truncate(time.Millisecond) // Reported times are exact. Two responses may be a millisecond apart.
	seconds := k.cores * now.Sub(k.began).Seconds()
	fmt.Fprintf(w, "node_cpu_usage_seconds_total %g %d\nnode_memory_working_set_bytes 1.048576e+06 %d\n", seconds, now.UnixMilli(), now.UnixMilli())
	for _, pod := range k.pods {
		ns, name, _ := strings.Cut(pod, "/")
		labels := fmt.Sprintf(`{container="main",namespace=%q,pod=%q}`, ns, name)
		fmt.Fprintf(w, "container_cpu_usage_seconds_total%s %g %d\ncontainer_memory_working_set_bytes%s 4096 %d\n", labels, seconds/2, now.UnixMilli(), labels, now.UnixMilli())
	}
}

// fakeCluster is an API with Nodes and Pods, and a kubelet for each Node.
type fakeCluster struct {
	t  *testing.T
	ca *pki.Authority

	mu          sync.Mutex
	nodes       []*fakeKubelet
	annotations map[string]string
	running     []string // namespace/pod
	noPods      bool     // Listing Pods is forbidden.
}

func newFakeCluster(t *testing.T) *fakeCluster {
	t.Helper()
	ca, err := pki.NewAuthority("kubelets")
	must(t, err)
	return &fakeCluster{t: t, ca: ca}
}

// node adds a Node with its kubelet.
func (f *fakeCluster) node(name string, cores float64, pods ...string) *fakeKubelet {
	f.t.Helper()
	cert, key, err := f.ca.Issue(pki.Leaf{CommonName: "system:node:" + name, Server: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	must(f.t, err)
	pair, err := pki.StaticKeyPair(cert, key)
	must(f.t, err)
	k := &fakeKubelet{name: name, cores: cores, pods: pods, began: time.Now()}
	s := httptest.NewUnstartedServer(k)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Listener = tls.NewListener(s.Listener, pki.ServerConfig(pair))
	s.Start()
	f.t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	must(f.t, err)
	k.port, err = strconv.Atoi(port)
	must(f.t, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes = append(f.nodes, k)
	f.running = append(f.running, pods...)
	return k
}

func (f *fakeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	items := []any{}
	if strings.HasSuffix(r.URL.Path, "/pods") {
		if f.noPods {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		for _, pod := range f.running {
			ns, name, _ := strings.Cut(pod, "/")
			items = append(items, map[string]any{"metadata": map[string]any{"namespace": ns, "name": name, "labels": map[string]string{"app": name}}})
		}
	} else {
		for _, k := range f.nodes {
			items = append(items, map[string]any{
				"metadata": map[string]any{"name": k.name, "labels": map[string]string{"node": k.name}, "annotations": f.annotations},
				"status": map[string]any{
					"addresses":       []any{map[string]string{"type": "Hostname", "address": k.name + ".invalid"}, map[string]string{"type": "InternalIP", "address": "127.0.0.1"}},
					"daemonEndpoints": map[string]any{"kubeletEndpoint": map[string]int{"Port": k.port}},
				},
			})
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{}, "items": items})
}

// serve starts the API and returns a client configuration.
func (f *fakeCluster) serve() *rest.Config {
	s := httptest.NewServer(f)
	f.t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: f.ca.PEM()}}
}

func start(t *testing.T, s *KubeletSource) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-done)
	})
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			t.Fatalf("condition %q is still false after the deadline, want true", what)
		case <-tick.C:
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
