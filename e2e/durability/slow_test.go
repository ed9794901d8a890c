package durability

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A remote etcd or one with a slow disk, and then one whose connections break during writes.
func TestASlowEtcd(t *testing.T) {
	c := newCluster(t, 1)
	hop := newRelay(t, c.configs[0].ListenClientUrls[0].Host)
	d := newFrontDoor(t, "--etcd-compaction-interval", "0", "--etcd-servers", "http://"+hop.address())
	d.start()
	r := record(t, d.client(), 6, 3)
	r.until(40)

	const slow = 100 * time.Millisecond
	hop.delay.Store(int64(slow))
	r.until(20)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	if _, err := d.client().CoreV1().ConfigMaps("default").Create(ctx, object("other", "v", ""), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 2*slow {
		t.Errorf("a write was acknowledged after %s, want at least %s", took, 2*slow)
	}

	// etcd is slower than a health check may take: readyz reports that, in a bounded time.
	hop.delay.Store(int64(3 * time.Second))
	d.unready("etcd")
	began = time.Now()
	if _, body, err := d.get(ctx, "/readyz"); err != nil || time.Since(began) > 30*time.Second {
		t.Errorf("GET /readyz took %s: %v %s; want a response within 30 s", time.Since(began), err, body)
	}
	hop.delay.Store(0)
	d.await("ready again", func(ctx context.Context) error {
		_, err := d.client().CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
		return err
	})

	for range 5 {
		r.until(10)
		hop.cut()
	}
	r.until(20)
	r.verdict(c.endpoints()...)
}
