package durability

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// etcd is slower than a health check may take: readyz reports that, in a bounded time. Requests during slow and broken connections to
// etcd are in internal/simulation.
func TestReadinessWithASlowEtcd(t *testing.T) {
	c := newCluster(t, 1)
	hop := newRelay(t, c.configs[0].ListenClientUrls[0].Host)
	d := newFrontDoor(t, "--etcd-servers", "http://"+hop.address())
	d.start()

	hop.delay.Store(int64(3 * time.Second))
	d.unready("etcd")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	if _, body, err := d.get(ctx, "/readyz"); err != nil || time.Since(began) > 30*time.Second {
		t.Errorf("GET /readyz took %s: %v %s; want a response within 30 s", time.Since(began), err, body)
	}
	hop.delay.Store(0)
	d.await("ready again", func(ctx context.Context) error {
		code, body, err := d.get(ctx, "/readyz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d: %s", code, body)
		}
		return err
	})
}
