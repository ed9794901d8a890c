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

// One user asks far more than there are seats for, another asks once. Who is served when is the order in which the one
// seat is given. Time stands still while they queue and each is served equally long, so that the order is always the same.
func TestANoisyUserDoesNotStarveAQuietOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &testEnv{client: fake.NewClientset(), seen: prometheus.NewRegistry()} // etcd needs time of its own
		f := w.fair(t, 12)
		first := enter(t.Context(), f, somebody("noisy", queueing), pods)
		if !first.Admitted || first.Level.Name != queueing {
			t.Fatalf("%+v", first)
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
		// A user has a hand of four queues of 50, and each queue gets its share.
		if refused["noisy"] != noise-4*50 || refused["quiet"] != 0 {
			t.Errorf("refused: %v", refused)
		}
		last := 0
		for i, name := range order {
			if name == "quiet" {
				last = i
			}
		}
		if last >= 2*4+quiet {
			t.Errorf("the last of %d requests of the quiet user came as number %d of %d: %v", quiet, last+1, len(order), order[:last+1])
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
				t.Errorf("taken for %s (%s) at %s (%s)", turn.Schema.Name, turn.Schema.UID, turn.Level.Name, turn.Level.UID)
			}
		})
	}
}

func TestNoFreeSeat(t *testing.T) {
	w := newTestEnv(t)
	f := w.fair(t, 12)
	first := enter(t.Context(), f, somebody("jane", refusing), pods)
	if !first.Admitted || first.Level.Name != refusing || w.gauge(t, seatsOut, refusing) != 1 {
		t.Fatalf("%+v", first)
	}
	t.Run("a level that does not queue refuses at once", func(t *testing.T) {
		second := enter(t.Context(), f, somebody("jane", refusing), pods)
		if second.Admitted || second.RetryAfter < 1 || second.Schema == nil {
			t.Errorf("%+v", second)
		}
	})
	t.Run("other levels have their own", func(t *testing.T) {
		turn := enter(t.Context(), f, somebody("jane"), pods)
		defer turn.Release()
		if !turn.Admitted {
			t.Errorf("%+v", turn)
		}
	})
	t.Run("administrators need none", func(t *testing.T) {
		for range 20 {
			turn := enter(t.Context(), f, admin, pods)
			defer turn.Release()
			if !turn.Admitted {
				t.Fatalf("%+v", turn)
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
			t.Error("admitted")
		}
	})
	t.Run("leaving twice gives back one seat", func(t *testing.T) {
		var both sync.WaitGroup
		for range 2 {
			both.Go(first.Release)
		}
		both.Wait()
		if n := w.gauge(t, seatsOut, refusing); n != 0 {
			t.Errorf("%v seats are taken", n)
		}
		again := enter(t.Context(), f, somebody("jane", refusing), pods)
		defer again.Release()
		if !again.Admitted || w.gauge(t, seatsOut, refusing) != 1 {
			t.Errorf("%+v", again)
		}
	})
}
