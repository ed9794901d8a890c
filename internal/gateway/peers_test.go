package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// Replicas exchange verdicts while they run. A stopping replica removes its verdicts. The verdicts of a killed replica expire.
func TestReplicasExchangeVerdicts(t *testing.T) {
	t.Parallel()
	server := fake.NewClientset()
	leases := server.CoordinationV1()
	times := peerTimes{renew: 100 * time.Millisecond, gap: 10 * time.Millisecond, dead: time.Second, forget: 2 * time.Second}
	var wg sync.WaitGroup
	defer wg.Wait()
	start := func(name string, leads bool) (*peers, context.CancelFunc) {
		e := newElection(leases, "ns", "gw", name, zap.NewNop())
		e.set(leads)
		p := newPeers(e, leases.Leases("ns"), times, zap.NewNop())
		p.server = server
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		return p, cancel
	}
	one, endOne := start("one", true)
	defer endOne()
	two, endTwo := start("two", false)
	defer endTwo()
	hears := func(p *peers, from, want string) {
		t.Helper()
		eventually(t, "the verdicts of "+from, func() error {
			others, _ := p.Received()
			if got, ok := others["gw-replica-"+from]; !ok && want != "" || string(got) != want {
				return fmt.Errorf("%q", others)
			}
			return nil
		})
	}
	changed := one.Changed()
	two.Publish([]byte("b"))
	hears(one, "two", "b")
	select {
	case <-changed:
	default:
		t.Error("Changed did not fire after the other replica published, want a signal")
	}
	one.Publish([]byte("a"))
	hears(two, "one", "a")
	if _, leads := one.Received(); !leads {
		t.Error("the first replica does not lead, want the lead")
	}
	if _, leads := two.Received(); leads {
		t.Error("the second replica leads too, want one leader")
	}
	two.Publish(make([]byte, maxVerdicts+1))
	hears(one, "two", "")
	two.Publish([]byte("c"))
	hears(one, "two", "c")
	endTwo()
	eventually(t, "a replica that ended is gone", func() error {
		if others, _ := one.Received(); len(others) > 0 {
			return fmt.Errorf("%q", others)
		}
		return nil
	})

	dead := newPeers(newElection(leases, "ns", "gw", "dead", zap.NewNop()), leases.Leases("ns"), times, zap.NewNop())
	dead.Publish([]byte("d"))
	eventually(t, "the verdicts of one that dies", func() error { // it is killed after its verdicts arrived: on a busy machine that may take longer than its lease
		if err := dead.write(t.Context()); err != nil {
			t.Fatal(err)
		}
		if others, _ := one.Received(); string(others["gw-replica-dead"]) != "d" {
			return fmt.Errorf("%q", others)
		}
		return nil
	})
	eventually(t, "a dead replica does not count, and then its Lease goes", func() error {
		if others, _ := one.Received(); len(others) > 0 {
			return fmt.Errorf("%q", others)
		}
		if list, err := leases.Leases("ns").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
			return errors.Join(err, fmt.Errorf("%d Leases", len(list.Items)))
		}
		return nil
	})
}
