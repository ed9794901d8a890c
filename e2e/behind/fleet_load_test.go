//go:build incumbent

package behind

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// readsPerSecond are those of each reader, writesPerSecond those in each cluster.
	readsPerSecond, writesPerSecond = 20, 5
	// maxReported limits the failed reads that are described.
	maxReported = 20
	// shareWithin is the time in which an API server that is ready again gets its share of the requests.
	shareWithin = 10 * time.Second
	namespace   = "/api/v1/namespaces/default"
)

// load is reads, writes and informers.
type load struct {
	work            sync.WaitGroup
	reads, failures atomic.Int64
	repeats         atomic.Bool // a failed read is repeated once, as clients do
	clusters        map[string]*clusterLoad
}

type clusterLoad struct {
	reads, extensionReads, written atomic.Int64
	informers                      map[string]cache.Store // of Secrets
}

// startLoad starts an informer and two readers, of the cluster and of the extension server, for each way to each cluster, and a writer for
// each cluster. They end with ctx.
func (f *fleet) startLoad(ctx context.Context, t *testing.T) *load {
	t.Helper()
	l := &load{clusters: map[string]*clusterLoad{}}
	for name, c := range f.clusters {
		at := &clusterLoad{informers: map[string]cache.Store{}}
		l.clusters[name] = at
		for i := range f.fronts {
			for _, byHost := range []bool{false, true} {
				way := fmt.Sprintf("cluster %s, by host %t, front door %d", name, byHost, i)
				client := f.client(t, name, byHost, i)
				l.work.Go(func() { l.read(ctx, t, way, client, namespace, &at.reads) })
				extension := f.client(t, name, byHost, i)
				l.work.Go(func() { l.read(ctx, t, way, extension, queue, &at.extensionReads) })
				factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("default"))
				at.informers[way] = factory.Core().V1().Secrets().Informer().GetStore()
				factory.Start(ctx.Done())
				l.work.Go(func() {
					<-ctx.Done()
					factory.Shutdown()
				})
			}
		}
		l.work.Go(func() { c.write(ctx, t, &at.written) })
	}
	return l
}

// client returns a client of alice for a cluster, by path or by host name. It connects to replica i of the front door if that is open,
// and never repeats a request.
func (f *fleet) client(t *testing.T, name string, byHost bool, i int) *kubernetes.Clientset {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig(t, name, "alice", team))
	if err != nil {
		t.Fatal(err)
	}
	if byHost {
		c.Host = "https://" + net.JoinHostPort(hostOf[name], f.fronts[0].port)
	}
	c.QPS, c.Burst, c.WarningHandler = readsPerSecond, 1, rest.NoWarnings{}
	c.ContentType, c.AcceptContentTypes = "application/json", "application/json" // watches in protobuf are not shared
	c.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:"+f.fronts[i].port)
		if err != nil {
			return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:"+f.fronts[1-i].port)
		}
		return conn, nil
	}
	return kubernetes.NewForConfigOrDie(c)
}

func (l *load) read(ctx context.Context, t *testing.T, way string, client kubernetes.Interface, path string, reads *atomic.Int64) {
	get := func() error {
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return client.CoreV1().RESTClient().Get().AbsPath(path).MaxRetries(0).Do(bounded).Error()
	}
	for ctx.Err() == nil {
		began := time.Now()
		err := get()
		if err != nil && l.repeats.Load() {
			t.Logf("%s: GET %s is repeated after %v", way, path, err)
			err = get()
		}
		if ctx.Err() != nil {
			return
		}
		l.reads.Add(1)
		reads.Add(1)
		if err != nil && l.failures.Add(1) <= maxReported {
			t.Errorf("%s: GET %s that began at %s failed after %s: %v, want no error", way, path, began.Format(time.StampMilli), time.Since(began).Round(time.Millisecond), err)
		}
	}
}

// write creates Secrets at an API server that never fails.
func (c *fleetCluster) write(ctx context.Context, t *testing.T, written *atomic.Int64) {
	config := rest.CopyConfig(c.Admin)
	config.Host, config.QPS, config.Burst = "https://"+c.endpoints[1], writesPerSecond, 1
	client := kubernetes.NewForConfigOrDie(config)
	for ctx.Err() == nil {
		_, err := client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}}, metav1.CreateOptions{})
		switch {
		case err == nil:
			written.Add(1)
		case ctx.Err() == nil:
			t.Errorf("a write without the front door: %v, want no error", err)
			return
		}
	}
}

// during runs a fault or a repair, and then waits until all informers have what was written.
func (l *load) during(t *testing.T, what string, change func() error) {
	t.Helper()
	began, reads, failures := time.Now(), l.reads.Load(), l.failures.Load()
	if err := change(); err != nil {
		t.Fatalf("%s: %v, want no error", what, err)
	}
	for _, at := range l.clusters {
		want := at.written.Load() + 1
		for way, store := range at.informers {
			eventually(t, what+": the informer of "+way+" is current", func() error {
				if got := int64(len(store.ListKeys())); got < want {
					return fmt.Errorf("it has %d Secrets, want %d", got, want)
				}
				return nil
			})
		}
	}
	t.Logf("%s: %d of %d reads failed in %s", what, l.failures.Load()-failures, l.reads.Load()-reads, time.Since(began).Round(time.Millisecond))
}

// faults lets each part fail, one after another, under load. The informers of west share a watch at each replica of the front door.
func (f *fleet) faults(t *testing.T, admin string) {
	kubectl(t, f.clusters["west"].Kubeconfig, "", "create", "clusterrole", "front-secrets", "--verb", "get,list,watch", "--resource", "secrets")
	kubectl(t, f.clusters["west"].Kubeconfig, "", "create", "clusterrolebinding", "front-secrets", "--clusterrole", "front-secrets", "--serviceaccount", "portico-system:portico-front")
	kubectl(t, admin, "", "patch", "cluster", "west", "--type", "merge", "-p", `{"spec":{"shared":[{"resources":["secrets"],"maxAge":"0s","watches":true}]}}`)
	before := map[string]int{}
	for name, c := range f.clusters {
		before[name] = c.watches(t, "secrets", c.endpoints...)
	}
	ctx, end := context.WithCancel(t.Context())
	l := f.startLoad(ctx, t)
	defer l.work.Wait()
	defer end()
	l.during(t, "before any fault", func() error { return nil })
	for name, want := range map[string]int{"east": len(l.clusters["east"].informers), "west": len(f.fronts)} {
		if got := f.clusters[name].watches(t, "secrets", f.clusters[name].endpoints...) - before[name]; got != want {
			t.Errorf("the API servers of %s have %d watches of the informers, want %d", name, got, want)
		}
	}
	for name, c := range f.clusters {
		l.during(t, "an API server of "+name+" is killed", c.StopAPIServer)
		l.during(t, "it starts again", func() error { return c.StartAPIServer(ctx) })
		c.awaitShare(t, l.clusters[name])
		l.during(t, "it hangs", func() error { return c.SignalAPIServer(syscall.SIGSTOP) })
		f.awaitReady(t, admin, name, apiServersPerCluster-1)
		l.during(t, "it continues", func() error { return c.SignalAPIServer(syscall.SIGCONT) })
		c.awaitShare(t, l.clusters[name])
		f.awaitReady(t, admin, name, apiServersPerCluster)
	}
	for i, front := range f.fronts {
		l.during(t, fmt.Sprintf("front door %d is stopped", i), func() error {
			code, err := front.process.Stop(syscall.SIGTERM)
			if err == nil && code != 0 {
				err = fmt.Errorf("it ended with exit status %d", code)
			}
			return err
		})
		l.during(t, "it starts again", func() error { front.start(t); return nil })
		l.repeats.Store(true) // a killed front door does not end its requests
		l.during(t, fmt.Sprintf("front door %d is killed", i), front.process.Kill)
		l.during(t, "it starts again", func() error { front.start(t); return nil })
		l.repeats.Store(false)
	}
	east, west := l.clusters["east"], l.clusters["west"]
	t.Logf("%d of %d reads failed, of which %d were of the extension server; %d objects were written",
		l.failures.Load(), l.reads.Load(), east.extensionReads.Load()+west.extensionReads.Load(), east.written.Load()+west.written.Load())
}

// awaitShare waits until the first API server has served at least half of its share of the reads since the call.
func (c *fleetCluster) awaitShare(t *testing.T, l *clusterLoad) {
	t.Helper()
	began, reads, served := time.Now(), l.reads.Load(), c.served(t)
	eventually(t, "it has its share", func() error {
		got, all := c.served(t)-served, l.reads.Load()-reads
		if all < readsPerSecond || got*2*apiServersPerCluster < all {
			return fmt.Errorf("it has served %d of %d reads, want at least half of a third", got, all)
		}
		return nil
	})
	if took := time.Since(began); took > shareWithin {
		t.Errorf("an API server had its share after %s, want at most %s", took, shareWithin)
	}
}

// served returns the number of requests for a namespace that the first API server has served.
func (c *fleetCluster) served(t *testing.T) int64 {
	t.Helper()
	return int64(metric(t, c.Kubeconfig, "apiserver_request_total", `resource="namespaces"`, `verb="GET"`))
}

// metric returns the sum of the series of a metric with these labels.
func metric(t *testing.T, kubeconfig, name string, labels ...string) (sum float64) {
	t.Helper()
	for line := range strings.Lines(kubectl(t, kubeconfig, "", "get", "--raw", "/metrics")) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' || slices.ContainsFunc(labels, func(label string) bool { return !strings.Contains(line, label) }) {
			continue
		}
		var one float64
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &one); err != nil {
			t.Fatalf("line %q of the metrics: %v, want a number", line, err)
		}
		sum += one
	}
	return sum
}
