package aggregator

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"portico.dev/internal/store"
)

// Replicas start and stop over one etcd. When the leader stops, another replica takes the lead, and the Service kubernetes
// lists the live replicas.
func TestSecondReplicaLeadsAfterLeaderStops(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	sockets, err := os.MkdirTemp("", "p") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	socket := filepath.Join(sockets, "etcd")
	etcd := startEtcd(t, socket)
	shared := func(address string) func(*Config) {
		return func(c *Config) {
			c.EtcdServers, c.Services.AdvertiseAddress = []string{"unix://" + socket}, address
		}
	}
	first := t.TempDir()
	_, stopOne := open(t, first, shared("192.0.2.1"))
	two, stopTwo := open(t, beside(t, first), shared("192.0.2.2"))
	client := kubernetes.NewForConfigOrDie(two)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	awaitEndpoints(ctx, t, client, "192.0.2.1", "192.0.2.2")

	if err := stopOne(); err != nil {
		t.Errorf("stopping replica one failed: %v, want no error", err)
	}
	awaitEndpoints(ctx, t, client, "192.0.2.2")
	// Everything that only the leader does is done.
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "the default service account", func() bool {
		_, err := client.CoreV1().ServiceAccounts("new").Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
	root, err := os.ReadFile(filepath.Join(first, "pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "the root certificates", func() bool {
		published, err := client.CoreV1().ConfigMaps("new").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err == nil && published.Data["ca.crt"] == string(root)
	})
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"configmaps": {}}}}
	if _, err := client.CoreV1().ResourceQuotas("new").Create(ctx, quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "the status of a quota", func() bool {
		q, err := client.CoreV1().ResourceQuotas("new").Get(ctx, "q", metav1.GetOptions{})
		used := q.Status.Used["configmaps"]
		return err == nil && used.Value() == 1
	})
	if err := client.CoreV1().Namespaces().Delete(ctx, "new", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "the end of a namespace", func() bool {
		_, err := client.CoreV1().Namespaces().Get(ctx, "new", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	for _, stop := range []func() error{stopTwo, etcd} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// A killed leader does not release its lease. It keeps the lead and its endpoint in the Service kubernetes until the lease has
// expired. In this test only the lease exists.
func TestEndpointOfKilledLeaderIsRemovedAtLeaseExpiry(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	sockets, err := os.MkdirTemp("", "p") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	socket := filepath.Join(sockets, "etcd")
	stopEtcd := startEtcd(t, socket)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + socket}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	live := func(seconds int64) {
		t.Helper()
		lease, err := etcd.Grant(ctx, seconds)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := etcd.Put(ctx, "/portico/live/killed@192.0.2.9:6443", "", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	live(3600)
	alive, stop := open(t, t.TempDir(), func(c *Config) {
		c.EtcdServers, c.Services.AdvertiseAddress = []string{"unix://" + socket}, "192.0.2.1"
	})
	client := kubernetes.NewForConfigOrDie(alive)
	// The EndpointSlice is as the killed replica left it. No other source has its address.
	ready, port, name := true, int32(6443), "https"
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.9"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
	if _, err := client.DiscoveryV1().EndpointSlices("default").Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating the EndpointSlice failed: %v; want no slice from the replica that does not lead", err)
	}
	const seconds = 8 // declared here: on a busy machine the start of the second replica may have taken longer
	killed := time.Now()
	live(seconds)
	awaitEndpoints(ctx, t, client, "192.0.2.1")
	if took := time.Since(killed); took < (seconds-1)*time.Second {
		t.Errorf("the endpoint was removed after %v, want at least the lease's %d seconds minus one", took, seconds)
	}
	for _, stop := range []func() error{stop, stopEtcd} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// await polls until the condition holds.
func await(ctx context.Context, t *testing.T, what string, is func() bool) {
	t.Helper()
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: condition not met before the deadline, want it met", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// awaitEndpoints waits until the Service kubernetes has exactly these addresses, in slices and in Endpoints.
func awaitEndpoints(ctx context.Context, t *testing.T, client kubernetes.Interface, want ...string) {
	t.Helper()
	var inSlices, inEndpoints []string
	for {
		inSlices, inEndpoints = nil, nil
		found, err := client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
		if err == nil {
			for _, s := range found.Items {
				for _, e := range s.Endpoints {
					inSlices = append(inSlices, e.Addresses...)
				}
			}
		}
		endpoints, err := client.CoreV1().Endpoints("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		if err == nil {
			for _, s := range endpoints.Subsets {
				for _, a := range s.Addresses {
					inEndpoints = append(inEndpoints, a.IP)
				}
			}
		}
		slices.Sort(inSlices)
		slices.Sort(inEndpoints)
		if slices.Equal(inSlices, want) && slices.Equal(inEndpoints, want) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("slices %v, endpoints %v; want %v", inSlices, inEndpoints, want)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// startEtcd runs an etcd that outlives each replica.
func startEtcd(t *testing.T, socket string) (stop func() error) {
	t.Helper()
	return startEtcdIn(t, t.TempDir(), socket)
}

// startEtcdIn starts an etcd in a directory that may have the data of an earlier one.
func startEtcdIn(t *testing.T, dir, socket string) (stop func() error) {
	t.Helper()
	s, err := store.New(store.Config{DataDir: dir, UnixSocket: socket})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(cancel)
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("etcd was not ready within a minute, want ready")
	}
	return func() error {
		cancel()
		return <-done
	}
}
