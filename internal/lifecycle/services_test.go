package lifecycle

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/clients/clientstest"
)

// kube-controller-manager v1.37.1 writes this condition without a reason, and overwrites a different condition each time.
func TestServiceCIDRConditionMatchesUpstream(t *testing.T) {
	client := clientstest.NewClientset()
	c := &serviceCIDRs{client: client, ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}, log: zaptest.NewLogger(t)}
	for range 2 { // the first call creates the object, the second one reads it
		if _, err := c.reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r, err := client.NetworkingV1().ServiceCIDRs().Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil || len(r.Status.Conditions) != 1 {
		t.Fatalf("ServiceCIDR kubernetes = %+v, error %v, want 1 condition", r, err)
	}
	got := r.Status.Conditions[0]
	got.LastTransitionTime = metav1.Time{}
	if want := (metav1.Condition{
		Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Message: "Kubernetes Service CIDR is ready",
	}); got != want {
		t.Errorf("condition = %+v, want %+v", got, want)
	}
	client.ClearActions()
	if _, err := c.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, a := range client.Actions() {
		if a.GetVerb() != "list" {
			t.Errorf("request after reconcile of a correct object: %s %s, want only list", a.GetVerb(), a.GetSubresource())
		}
	}
}

// The leader repairs claims at the start, once a minute, and as soon as a replica has ended during a write.
func TestAllocationsAreRepairedWhenReplicaStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the variables below
		var repairs int
		abandoned, leads, fault := false, true, error(nil)
		changed := make(chan struct{})
		r := &allocationRepair{
			repair: func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				repairs++
				abandoned = false
				return nil
			},
			abandoned: func(context.Context) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				return abandoned, fault
			},
			election: func() (bool, <-chan struct{}) {
				mu.Lock()
				defer mu.Unlock()
				return leads, changed
			},
			log: zap.NewNop(),
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.run(ctx) }()
		want := func(when string, n int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if repairs != n {
				t.Errorf("%s: repaired %d times, want %d", when, repairs, n)
			}
		}
		want("at the start", 1)
		time.Sleep(repairPause - abandonedPause) // in a bubble of synctest, as below
		want("before a minute is over", 1)
		mu.Lock()
		abandoned = true
		mu.Unlock()
		time.Sleep(abandonedPause)
		want("when a replica has ended", 2)
		time.Sleep(repairPause)
		want("a minute later", 3)
		mu.Lock()
		fault, abandoned = errors.New("etcdserver: no leader"), true
		mu.Unlock()
		time.Sleep(10 * abandonedPause)
		want("when nobody can tell", 3)
		mu.Lock()
		fault, leads = nil, false
		mu.Unlock()
		time.Sleep(5 * repairPause)
		want("when another leads", 3)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
