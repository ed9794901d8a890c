//go:build incumbent

package behind

import (
	"context"
	"fmt"
	"net"
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
)

// load is reads, writes and informers.
type load struct {
	work            sync.WaitGroup
	reads, failures atomic.Int64
	clusters        map[string]*clusterLoad
}

type clusterLoad struct {
	reads, written atomic.Int64
	informers      map[string]cache.Store // of Secrets
}

// startLoad starts a reader and an informer for each way to each cluster, and a writer for each cluster. They end with ctx.
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
				l.work.Go(func() { l.read(ctx, t, way, client, at) })
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
	c.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:"+f.fronts[i].port)
		if err != nil {
			return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:"+f.fronts[1-i].port)
		}
		return conn, nil
	}
	return kubernetes.NewForConfigOrDie(c)
}

func (l *load) read(ctx context.Context, t *testing.T, way string, client kubernetes.Interface, at *clusterLoad) {
	for ctx.Err() == nil {
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		err := client.CoreV1().RESTClient().Get().Resource("namespaces").Name("default").MaxRetries(0).Do(bounded).Error()
		cancel()
		if ctx.Err() != nil {
			return
		}
		l.reads.Add(1)
		at.reads.Add(1)
		if err != nil && l.failures.Add(1) <= maxReported {
			t.Errorf("%s: a read that began at %s failed after %s: %v, want no error", way, began.Format(time.StampMilli), time.Since(began).Round(time.Millisecond), err)
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

// faults lets each part fail, one after another, under load.
func (f *fleet) faults(t *testing.T, admin string) {
	ctx, end := context.WithCancel(t.Context())
	l := f.startLoad(ctx, t)
	defer l.work.Wait()
	defer end()
	l.during(t, "before any fault", func() error { return nil })
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
	}
	t.Logf("%d of %d reads failed, %d and %d objects were written", l.failures.Load(), l.reads.Load(), l.clusters["east"].written.Load(), l.clusters["west"].written.Load())
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

// served returns how often the first API server was asked for a namespace.
func (c *fleetCluster) served(t *testing.T) (n int64) {
	t.Helper()
	metrics := kubectl(t, c.Kubeconfig, "", "get", "--raw", "/metrics")
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `resource="namespaces"`) || !strings.Contains(line, `verb="GET"`) {
			continue
		}
		var one float64
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &one); err != nil {
			t.Fatalf("line %q of the metrics: %v, want a number", line, err)
		}
		n += int64(one)
	}
	return n
}
