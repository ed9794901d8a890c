package fairness_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/fake"
)

const (
	pods     = "/api/v1/namespaces/n/pods/p"
	inQueue  = "apiserver_flowcontrol_current_inqueue_requests"
	seatsOut = "apiserver_flowcontrol_current_executing_seats"
)

// One user sends many more requests than there are seats, and another user sends few. The single seat determines the order of service.
// The time is synthetic and all requests take equally long, so that the order is always the same.
func TestNoisyUserDoesNotStarveOtherUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &testEnv{client: fake.NewClientset(), seen: prometheus.NewRegistry()} // etcd cannot run in a bubble.
		f := w.fair(t, 12)
		first := enter(t.Context(), f, somebody("noisy", queueing), pods)
		if !first.Admitted || first.Level.Name != queueing {
			t.Fatalf("first reservation = %+v, want it admitted at level %s", first, queueing)
		}
		const noise, quiet = 250, 5
		var (
			mu      sync.Mutex // guards order and refused
			order   []string
			refused = map[string]int{}
			all     sync.WaitGroup
		)
		ask := func(name string) {
			turn := enter(t.Context(), f, somebody(name, queueing), pods)
			mu.Lock()
			if turn.Admitted {
				order = append(order, name)
			} else {
				refused[name]++
			}
			mu.Unlock()
			if turn.Admitted {
				time.Sleep(10 * time.Millisecond) // of the bubble
				turn.Release()
			}
		}
		for range noise {
			all.Go(func() { ask("noisy") })
		}
		synctest.Wait()
		for range quiet {
			all.Go(func() { ask("quiet") })
		}
		synctest.Wait()
		first.Release()
		all.Wait()
		// A user has a hand of four queues of 50 requests. Each queue gets its share.
		if refused["noisy"] != noise-4*50 || refused["quiet"] != 0 {
			t.Errorf("refused requests = %v, want %d of noisy and 0 of quiet", refused, noise-4*50)
		}
		last := 0
		for i, name := range order {
			if name == "quiet" {
				last = i
			}
		}
		if last >= 2*4+quiet {
			t.Errorf("last of %d requests of the quiet user is number %d of %d, want at most %d: %v", quiet, last+1, len(order), 2*4+quiet, order[:last+1])
		}
	})
}

func TestClassification(t *testing.T) {
	f := newTestEnv(t).fair(t, 100)
	for situation, test := range map[string]struct {
		who           user.Info
		target        string
		schema, level string
	}{
		"an administrator":       {admin, pods, "exempt", "exempt"},
		"a probe of anybody":     {anonymous, "/readyz", "probes", "exempt"},
		"a user":                 {somebody("jane"), pods, "global-default", "global-default"},
		"a user of a backend":    {somebody("jane"), "/apis/metrics.k8s.io/v1beta1/nodes", "global-default", "global-default"},
		"a workload":             {somebody("system:serviceaccount:n:default", "system:serviceaccounts", "system:serviceaccounts:n"), pods, "service-accounts", "workload-low"},
		"a system workload":      {somebody("system:serviceaccount:kube-system:x", "system:serviceaccounts", "system:serviceaccounts:kube-system"), pods, "kube-system-service-accounts", "workload-high"},
		"a stranger":             {anonymous, pods, "global-default", "global-default"},
		"discovery for a user":   {somebody("jane"), "/apis", "global-default", "global-default"},
		"a watch by a workload":  {somebody("system:serviceaccount:n:default", "system:serviceaccounts"), "/api/v1/pods?watch=1", "service-accounts", "workload-low"},
		"a kubelet at its lease": {somebody("system:node:a", "system:nodes"), "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a", "system-node-high", "node-high"},
	} {
		t.Run(situation, func(t *testing.T) {
			turn := enter(t.Context(), f, test.who, test.target)
			defer turn.Release()
			if turn.Schema.Name != test.schema || turn.Level.Name != test.level || turn.Schema.UID == "" || turn.Level.UID == "" || !turn.Admitted {
				t.Errorf("schema = %s (%s), level = %s (%s), want %s at %s, admitted", turn.Schema.Name, turn.Schema.UID, turn.Level.Name, turn.Level.UID, test.schema, test.level)
			}
		})
	}
}

func TestRequestWithoutFreeSeatIsRefusedOrQueued(t *testing.T) {
	w := newTestEnv(t)
	f := w.fair(t, 12)
	first := enter(t.Context(), f, somebody("jane", refusing), pods)
	if !first.Admitted || first.Level.Name != refusing || w.gauge(t, seatsOut, refusing) != 1 {
		t.Fatalf("first reservation = %+v, want it admitted with one seat at level %s", first, refusing)
	}
	t.Run("a level that does not queue refuses at once", func(t *testing.T) {
		second := enter(t.Context(), f, somebody("jane", refusing), pods)
		if second.Admitted || second.RetryAfter < 1 || second.Schema == nil {
			t.Errorf("second reservation = %+v, want a refusal with RetryAfter", second)
		}
	})
	t.Run("other levels have their own", func(t *testing.T) {
		turn := enter(t.Context(), f, somebody("jane"), pods)
		defer turn.Release()
		if !turn.Admitted {
			t.Errorf("reservation at another level = %+v, want it admitted", turn)
		}
	})
	t.Run("administrators need none", func(t *testing.T) {
		for range 20 {
			turn := enter(t.Context(), f, admin, pods)
			defer turn.Release()
			if !turn.Admitted {
				t.Fatalf("reservation of an administrator = %+v, want it admitted", turn)
			}
		}
	})
	t.Run("who leaves before the turn comes is refused", func(t *testing.T) {
		held := enter(t.Context(), f, somebody("jane", queueing), pods)
		defer held.Release()
		ctx, cancel := context.WithCancel(t.Context())
		refused := make(chan bool)
		go func() { refused <- !enter(ctx, f, somebody("jane", queueing), pods).Admitted }()
		eventually(t, "the request waits", func() bool { return w.gauge(t, inQueue, queueing) == 1 })
		cancel()
		if !<-refused {
			t.Error("reservation of a client that disconnected was admitted, want it refused")
		}
	})
	t.Run("leaving twice gives back one seat", func(t *testing.T) {
		var both sync.WaitGroup
		for range 2 {
			both.Go(first.Release)
		}
		both.Wait()
		if n := w.gauge(t, seatsOut, refusing); n != 0 {
			t.Errorf("%v seats are taken after the release, want 0", n)
		}
		again := enter(t.Context(), f, somebody("jane", refusing), pods)
		defer again.Release()
		if !again.Admitted || w.gauge(t, seatsOut, refusing) != 1 {
			t.Errorf("reservation after the release = %+v, want it admitted with one seat", again)
		}
	})
}
