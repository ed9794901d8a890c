package durability

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Two of three members of etcd stop and restart. In between every request gets an error in time, and afterwards everything
// works without an intervention.
func TestALostLeader(t *testing.T) {
	const short = 3 * time.Second
	c := newCluster(t, 3)
	d := newFrontDoor(t, "--etcd-compaction-interval", "0", "--request-timeout", short.String(), "--etcd-servers", strings.Join(c.endpoints(), ","))
	d.start()
	pid := d.process.PID()
	r := record(t, d.client(), 3, 3)
	r.until(40)
	usual := r.usual()
	steady := object("steady", "v", "")
	delete(steady.Labels, "durability")
	if err := r.do(http.MethodPost, "", steady, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	watch, err := d.client().CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=steady", ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	c.stop(1, 3)

	d.unready("etcd")
	if code, body, err := d.get(ctx, "/readyz?verbose"); err != nil || code != http.StatusOK || !strings.Contains(body, "[+]etcd tolerated: ok") {
		t.Errorf("GET /readyz of the only replica = %d %s %v, want 200 with etcd tolerated", code, body, err)
	}
	err = r.do(http.MethodPut, "steady", object("steady", "never", ""), nil)
	if code := statusCode(err); code != http.StatusGatewayTimeout && code != http.StatusServiceUnavailable || !strings.Contains(err.Error(), "etcd") {
		t.Errorf("Update without a leader = %v, want 503 or 504 with etcd", err)
	}
	_, err = d.client().CoreV1().ConfigMaps(namespace).Get(ctx, "k-0", metav1.GetOptions{})
	if code := statusCode(err); code != http.StatusGatewayTimeout && code != http.StatusServiceUnavailable || !strings.Contains(err.Error(), "etcd") {
		t.Errorf("Get without a leader = %v, want 503 or 504 with etcd", err)
	}

	c.start(1, 3)
	d.await("ready again", func(ctx context.Context) error {
		_, err := d.client().CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
		return err
	})
	r.until(40)
	steady = object("steady", "after", "")
	delete(steady.Labels, "durability")
	if err := r.do(http.MethodPut, "steady", steady, nil); err != nil {
		t.Error(err)
	}
	for got := ""; got != "after"; {
		event, open := <-watch.ResultChan()
		if !open {
			t.Fatal("the watch from before ended, want it open")
		}
		if m, ok := event.Object.(*corev1.ConfigMap); ok {
			got = m.Data["value"]
		}
	}
	if d.process.PID() != pid || closed(d.process.Exited()) {
		t.Error("the front door exited or restarted, want the same process")
	}
	if limit := short + 5*time.Second + 8*usual; r.slowest > limit { // a busy machine is slow with everything
		t.Errorf("slowest response = %s, want at most %s with a request timeout of %s", r.slowest, limit, short)
	}
	for answer := range r.answers {
		if answer == "no answer" || strings.HasPrefix(answer, "500 ") {
			t.Errorf("%d responses with %q, want none", r.answers[answer], answer)
		}
	}
	r.verdict(c.endpoints()...)
}

func statusCode(err error) int32 {
	if status, ok := err.(apierrors.APIStatus); ok {
		return status.Status().Code
	}
	return 0
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
