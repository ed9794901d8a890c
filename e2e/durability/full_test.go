package durability

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The embedded etcd fills up, the front door is killed and started again, and an operator frees space.
func TestAFullEtcd(t *testing.T) {
	d := newFrontDoor(t, "--etcd-compaction-interval", "0", "--etcd-unix-socket", "etcd.sock", "--etcd-quota-backend-bytes", fmt.Sprint(24<<20))
	d.start()
	r := record(t, d.client(), 2, 2)
	r.until(60)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	configMaps := d.client().CoreV1().ConfigMaps("default")
	ballast := func(i int) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("ballast-%d", i)}, BinaryData: map[string][]byte{"b": bytes.Repeat([]byte{1}, 900<<10)}}
	}
	var err error
	made := 0
	for ; err == nil && made < 100; made++ {
		_, err = configMaps.Create(ctx, ballast(made), metav1.CreateOptions{})
	}
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != http.StatusInsufficientStorage || !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "etcd is full") {
		t.Fatalf("Create after %d objects = %v, want 507 with \"etcd is full\"", made, err)
	}
	d.unready("etcd-space")
	if code, body, err := d.get(ctx, "/livez"); err != nil || code != http.StatusOK {
		t.Errorf("GET /livez of a full etcd = %d %v %s, want 200", code, err, body)
	}
	serves := func(ctx context.Context) error {
		_, err := configMaps.Get(ctx, "ballast-0", metav1.GetOptions{})
		return err
	}
	d.kill()
	d.begin()
	d.await("serving reads", serves)
	d.unready("etcd-space")
	if err := configMaps.Delete(ctx, "ballast-1", metav1.DeleteOptions{}); err != nil {
		t.Errorf("Delete in a full etcd failed: %v, want no error", err)
	}
	if _, err := configMaps.Create(ctx, ballast(1), metav1.CreateOptions{}); !isFull(err) {
		t.Errorf("Create after a restart = %v, want an error about a full etcd", err)
	}
	socket := "unix://" + filepath.Join(d.dir, "etcd.sock")
	r.verdict(socket)
	if t.Failed() {
		return
	}

	// The steps of docs/storage.md.
	for i := range made / 2 {
		if err := configMaps.Delete(ctx, fmt.Sprintf("ballast-%d", i), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	etcd := etcdClient(t, socket)
	now, err := etcd.Get(ctx, "nothing")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Compact(ctx, now.Header.Revision); err != nil {
		t.Fatal(err)
	}
	d.stop()
	d.start() // defragments, and disarms the alarm
	if _, err := configMaps.Create(ctx, ballast(1), metav1.CreateOptions{}); err != nil {
		t.Errorf("Create after space was freed failed: %v, want no error", err)
	}
}
