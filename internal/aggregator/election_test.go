package aggregator

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"portico.dev/internal/store"
)

// Replicas come and go over one etcd. When the one that leads goes, another goes on with everything, and the Service
// kubernetes names those that are alive.
func TestAnotherReplicaTakesOver(t *testing.T) {
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
	_, stopOne := open(t, t.TempDir(), shared("192.0.2.1"))
	two, stopTwo := open(t, t.TempDir(), shared("192.0.2.2"))
	client := kubernetes.NewForConfigOrDie(two)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	awaitEndpoints(ctx, t, client, "192.0.2.1", "192.0.2.2")

	if err := stopOne(); err != nil {
		t.Errorf("stop one: %v", err)
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
	await(ctx, t, "the root certificates", func() bool {
		_, err := client.CoreV1().ConfigMaps("new").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err == nil
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

// await polls until it is so.
func await(ctx context.Context, t *testing.T, what string, is func() bool) {
	t.Helper()
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s never came", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// awaitEndpoints waits until the Service kubernetes leads to these addresses and no other, in slices and in Endpoints.
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
		//lint:ignore SA1019 deprecated, and still read by clients from before EndpointSlices
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

// startEtcd runs an etcd that no replica goes away with.
func startEtcd(t *testing.T, socket string) (stop func() error) {
	t.Helper()
	s, err := store.New(store.Config{DataDir: t.TempDir(), UnixSocket: socket})
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
		t.Fatal("etcd is not ready within a minute")
	}
	return func() error {
		cancel()
		return <-done
	}
}
