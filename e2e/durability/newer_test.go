package durability

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Replicas are restarted, as in a rollback to the previous release, while etcd has values of a newer release under each key of
// the front door. No request fails, no value that only the newer release can read is deleted, and the log names it.
func TestValuesOfANewerRelease(t *testing.T) {
	c := newCluster(t, 1)
	var fronts []*frontDoor
	for range 2 {
		var first *frontDoor
		if len(fronts) > 0 {
			first = fronts[0]
		}
		d := newPortico(t, c.endpoints(), first)
		d.start()
		fronts = append(fronts, d)
	}
	w := newTraffic(t, fronts)
	client := etcdClient(t, c.endpoints()...)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lease, err := client.Grant(ctx, int64(patience/time.Second))
	if err != nil {
		t.Fatal(err)
	}
	put := func(values map[string]string, options ...clientv3.OpOption) {
		t.Helper()
		for key, value := range values {
			if _, err := client.Put(ctx, "/portico/"+key, value, options...); err != nil {
				t.Fatal(err)
			}
		}
	}
	replaced := map[string]string{"discovery/v1.echo.example.com": `{"version":1000,"resources":{"echoes":1}}`}
	kept := map[string]string{
		"nodeports/30500": `{"version":1000,"owner":"default/newer"}`,
		"debts/newer":     `{"version":1000,"id":"newer","apiService":"v1.newer.example.com"}`,
		// This extension server has no document that could replace it.
		"openapi/v1.echo.example.com": `{"version":1000}` + "\nbytes",
	}
	put(replaced)
	put(kept)
	w.start()
	for _, d := range fronts {
		w.restart(d)
	}
	// The replica of the newer release is the youngest, so that it does not lead.
	live := map[string]string{"live/newer": `{"version":1000,"parts":[]}`, "allocating/newer/1": `{"version":1000}`}
	put(live, clientv3.WithLease(lease.ID))
	maps.Copy(kept, live)
	for _, line := range []string{
		"cannot decode a cleanup debt", "claims are damaged or written by a newer release", "ignoring the unreadable verdicts of a replica", "ignoring an unreadable stored document",
	} {
		fronts[0].await("logging that "+line, func(context.Context) error {
			if !strings.Contains(fronts[0].process.Output()+fronts[1].process.Output(), line) {
				return errors.New("it is not logged")
			}
			return nil
		})
	}
	w.stop()
	w.report("rollback beside values of a newer release", noneMayFail)

	_, err = fronts[0].client().CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "other"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: 30500}}},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "already allocated") {
		t.Errorf("Create with a node port that a newer release has claimed = %v, want \"already allocated\"", err)
	}
	for key, value := range kept {
		found, err := client.Get(ctx, "/portico/"+key)
		if err != nil || len(found.Kvs) != 1 || string(found.Kvs[0].Value) != value {
			t.Errorf("etcd key %s = %v, %v; want no change", key, found.Kvs, err)
		}
	}
	for key, value := range replaced {
		fronts[0].await("that documents are stored anew", func(ctx context.Context) error {
			found, err := client.Get(ctx, "/portico/"+key)
			if err == nil && len(found.Kvs) == 1 && string(found.Kvs[0].Value) == value {
				err = fmt.Errorf("%s is still that of the newer release", key)
			}
			return err
		})
	}
}
