package durability

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var handOvers = flag.Int("hand-overs", 1, "how often the leader is killed, frozen and stopped")

// The work of a leader that ends moves to another replica, and its address leaves the Service kubernetes: at once when it is stopped,
// and before its lease has ended when it dies or hangs.
func TestHandOver(t *testing.T) {
	c := newCluster(t, 1)
	var replicas []*frontDoor
	for range 2 {
		d := newFrontDoor(t, "--etcd-servers", strings.Join(c.endpoints(), ","), "--bind-address", "127.0.0.1")
		if len(replicas) > 0 {
			d.beside(replicas[0])
		}
		d.start()
		replicas = append(replicas, d)
	}
	for range *handOvers {
		for _, end := range []struct {
			how  string
			dies bool
			do   func(*frontDoor)
		}{
			{"killed", true, (*frontDoor).kill},
			{"frozen", true, func(d *frontDoor) { d.signal(syscall.SIGSTOP) }},
			{"stopped", false, (*frontDoor).stop},
		} {
			leader, other := replicas[0], replicas[1]
			both := func(ctx context.Context) error {
				return errors.Join(leads(ctx, leader, true), leads(ctx, other, false))
			}
			leader.await("a leader", both)
			other.await("that both are endpoints", func(ctx context.Context) error { return endpoints(ctx, other, 2) })
			said := len(other.process.Output())
			began := time.Now()
			end.do(leader)
			ended := time.Since(began)
			other.await("that the other one leads", func(ctx context.Context) error { return leads(ctx, other, true) })
			led := time.Since(began)
			other.await("that the endpoint is gone", func(ctx context.Context) error { return endpoints(ctx, other, 1) })
			t.Logf("%s (which took %s): the other one leads after %s, the endpoint is gone after %s", end.how,
				ended.Round(time.Millisecond), led.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
			saidSo := func() bool {
				return strings.Contains(other.process.Output()[said:], "revoked the lease of a dead replica")
			}
			if end.dies { // the output of a process may arrive later than its responses
				other.await("heard to have ended the lease", func(context.Context) error {
					if !saidSo() {
						return errors.New("nothing of the lease in its output")
					}
					return nil
				})
			} else if saidSo() {
				t.Errorf("%s: the other replica revoked the lease, want the leader to do so", end.how)
			}
			if end.how == "frozen" {
				leader.signal(syscall.SIGCONT)
			} else {
				leader.start()
			}
			replicas[0], replicas[1] = other, leader
		}
	}
}

func (d *frontDoor) signal(s syscall.Signal) {
	d.t.Helper()
	if err := syscall.Kill(d.process.PID(), s); err != nil {
		d.t.Fatal(err)
	}
}

// leads checks whether a front door leads.
func leads(ctx context.Context, d *frontDoor, want bool) error {
	status := 0
	if want {
		status = 1
	}
	code, body, err := d.get(ctx, "/metrics")
	if line := fmt.Sprintf("leader_election_master_status{name=\"portico-aggregator\"} %d\n", status); err == nil && !strings.Contains(body, line) {
		err = fmt.Errorf("metrics: %d without %s", code, line)
	}
	return err
}

// endpoints checks the number of endpoints of the Service kubernetes.
func endpoints(ctx context.Context, d *frontDoor, want int) error {
	slices, err := d.client().DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kubernetes"})
	if err != nil {
		return err
	}
	n := 0
	for _, s := range slices.Items {
		n += len(s.Endpoints) * len(s.Ports)
	}
	if n != want {
		return fmt.Errorf("%d endpoints, want %d: %+v", n, want, slices.Items)
	}
	return nil
}
