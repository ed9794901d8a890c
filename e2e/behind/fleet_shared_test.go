//go:build incumbent

package behind

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	sharedInformers = 50
	// burstObjects are changed burstChanges times together. Each has burstSize bytes of data.
	burstObjects, burstChanges, burstSize = 20, 1000, 4 << 10
	burstWriters                          = 4
)

// sharing is a Cluster with shared watches of ConfigMaps. The Cluster has only one API server, whose watches and CPU time are measured.
// Another API server writes the objects.
type sharing struct {
	*burst
	cluster         *fleetCluster
	admin           string
	direct, through *rest.Config
	watches         int // of other clients
}

// share makes a cluster share watches.
func (f *fleet) share(t *testing.T, admin, name string) *sharing {
	t.Helper()
	c := f.clusters[name]
	kubectl(t, c.Kubeconfig, "", "create", "namespace", "shared")
	kubectl(t, c.Kubeconfig, "", "create", "clusterrolebinding", "front-view", "--clusterrole", "view", "--serviceaccount", "portico-system:portico-front")
	kubectl(t, admin, "", "patch", "cluster", name, "--type", "merge", "-p", fmt.Sprintf(
		`{"spec":{"server":{"endpoints":[%q]},"shared":[{"resources":["configmaps"],"maxAge":"0s","watches":true}]}}`, c.endpoints[0]))
	eventually(t, "the Cluster has one API server", func() error { return succeeds(t, admin, "", " 1/1 ", "get", "cluster", name, "--no-headers") })
	f.awaitServed(t, admin, name)

	through, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig(t, name, "alice", team))
	if err != nil {
		t.Fatal(err)
	}
	direct, err := c.As("alice", team)
	if err != nil {
		t.Fatal(err)
	}
	direct.Timeout = 0
	writer := rest.CopyConfig(c.Admin)
	writer.Host = "https://" + c.endpoints[1]
	s := &sharing{cluster: c, burst: &burst{kubernetes.NewForConfigOrDie(writer)}, admin: admin, direct: direct, through: through, watches: c.watches(t, "configmaps", c.endpoints[0])}
	s.create(t)
	return s
}

// cpu is the CPU time of the API server and of the first replica of the front door, in seconds.
type cpu struct{ apiServer, front float64 }

// measure returns the CPU time for the changes with a number of informers, which need so many watches.
func (s *sharing) measure(t *testing.T, what string, config *rest.Config, informers, watches int) cpu {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	stores, wait := s.inform(ctx, t, config, informers)
	defer wait()
	defer end()
	s.awaitSame(t, what, stores)
	s.awaitWatches(t, watches)
	before := s.cpu(t)
	s.run(t)
	s.awaitSame(t, what+", after the changes", stores)
	after := s.cpu(t)
	return cpu{after.apiServer - before.apiServer, after.front - before.front}
}

func (s *sharing) cpu(t *testing.T) cpu {
	t.Helper()
	const name = "process_cpu_seconds_total"
	return cpu{metric(t, s.cluster.Kubeconfig, name), metric(t, s.admin, name)}
}

// awaitWatches waits until the API server has so many watches of the informers.
func (s *sharing) awaitWatches(t *testing.T, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("kube-apiserver has %d watches of the informers", want), func() error {
		if got := s.cluster.watches(t, "configmaps", s.cluster.endpoints[0]) - s.watches; got != want {
			return fmt.Errorf("it has %d, want %d", got, want)
		}
		return nil
	})
}

// sharedWatches compares informers that share a watch with informers of the kube-apiserver itself.
func (f *fleet) sharedWatches(t *testing.T, admin string) {
	for name := range f.clusters { // east is in mode Impersonate, and west in mode FrontProxy
		s := f.share(t, admin, name)
		alone := s.measure(t, "no informer", s.direct, 0, 0)
		direct := s.measure(t, "informers of kube-apiserver", s.direct, sharedInformers, sharedInformers)
		shared := s.measure(t, "informers of the front door", s.through, sharedInformers, 1)
		t.Logf("%s: CPU time in seconds {of kube-apiserver, of the front door} for %d changes of objects with %d bytes: %.2f without informers, %.2f with %d of kube-apiserver, %.2f with %d of the front door",
			name, burstChanges, burstSize, alone, direct, sharedInformers, shared, sharedInformers)
		if shared.apiServer >= direct.apiServer {
			t.Errorf("CPU time of kube-apiserver with a shared watch = %.2f s, want less than %.2f s", shared.apiServer, direct.apiServer)
		}
		s.restart(t)
	}
}

// restart kills the API server of a shared watch and starts it again, while its objects change.
func (s *sharing) restart(t *testing.T) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	stores, wait := s.inform(ctx, t, s.through, sharedInformers)
	defer wait()
	defer end()
	s.awaitSame(t, "before the restart", stores)
	if err := s.cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	s.run(t)
	s.replace(t)
	if err := s.cluster.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	s.awaitSame(t, "after the restart", stores)
	s.run(t)
	s.awaitSame(t, "after further changes", stores)
	s.awaitWatches(t, 1)
}

// watches returns the watches of a resource in a namespace at API servers.
func (c *fleetCluster) watches(t *testing.T, resource string, endpoints ...string) (n int) {
	t.Helper()
	for _, endpoint := range endpoints {
		kubeconfig := changed(t, c.Kubeconfig, func(k *clientcmdapi.Cluster) { k.Server = "https://" + endpoint })
		n += int(metric(t, kubeconfig, "apiserver_longrunning_requests", fmt.Sprintf("resource=%q", resource), `scope="namespace"`, `verb="WATCH"`))
	}
	return n
}

// burst changes ConfigMaps in the namespace shared.
type burst struct{ client kubernetes.Interface }

func (b *burst) create(t *testing.T) {
	t.Helper()
	for i := range burstObjects {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("object-", i)}, Data: map[string]string{"data": strings.Repeat("x", burstSize)}}
		if _, err := b.client.CoreV1().ConfigMaps("shared").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// replace deletes all objects and creates them again.
func (b *burst) replace(t *testing.T) {
	t.Helper()
	for i := range burstObjects {
		if err := b.client.CoreV1().ConfigMaps("shared").Delete(t.Context(), fmt.Sprint("object-", i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.create(t)
}

// run changes the objects.
func (b *burst) run(t *testing.T) {
	t.Helper()
	failed := make(chan error, burstWriters)
	for k := range burstWriters {
		go func() {
			for i := k; i < burstChanges; i += burstWriters {
				_, err := b.client.CoreV1().ConfigMaps("shared").Patch(t.Context(), fmt.Sprint("object-", i%burstObjects), types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, i), metav1.PatchOptions{})
				if err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range burstWriters {
		if err := <-failed; err != nil {
			t.Errorf("change of an object: %v, want no error", err)
		}
	}
}

// inform starts informers with separate connections. They end with ctx, and wait returns when they have.
func (b *burst) inform(ctx context.Context, t *testing.T, config *rest.Config, n int) (stores []cache.Store, wait func()) {
	t.Helper()
	var all []informers.SharedInformerFactory
	for range n {
		own := rest.CopyConfig(config)
		own.QPS, own.WarningHandler, own.ContentType, own.AcceptContentTypes = -1, rest.NoWarnings{}, "application/json", "application/json"
		own.Dial = (&net.Dialer{}).DialContext
		factory := informers.NewSharedInformerFactoryWithOptions(kubernetes.NewForConfigOrDie(own), 0, informers.WithNamespace("shared"))
		stores = append(stores, factory.Core().V1().ConfigMaps().Informer().GetStore())
		factory.Start(ctx.Done())
		all = append(all, factory)
	}
	return stores, func() {
		for _, factory := range all {
			factory.Shutdown()
		}
	}
}

// awaitSame waits until all informers have the objects of the API server that writes.
func (b *burst) awaitSame(t *testing.T, when string, stores []cache.Store) {
	t.Helper()
	list, err := b.client.CoreV1().ConfigMaps("shared").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[types.UID]string{}
	for _, object := range list.Items {
		want[object.UID] = object.ResourceVersion
	}
	eventually(t, when+": all informers have the same objects", func() error {
		for i, store := range stores {
			got := map[types.UID]string{}
			for _, object := range store.List() {
				got[object.(*corev1.ConfigMap).UID] = object.(*corev1.ConfigMap).ResourceVersion
			}
			if !maps.Equal(got, want) {
				return fmt.Errorf("informer %d has %v, want %v", i, got, want)
			}
		}
		return nil
	})
}
