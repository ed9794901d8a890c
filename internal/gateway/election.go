package gateway

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Times of the Lease, as in kube-controller-manager.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// election selects, by a Lease, the replica that writes to shared objects. Serving requests does not depend on it.
type election struct {
	leases    coordinationv1.LeasesGetter
	namespace string
	name      string
	identity  string
	log       *zap.Logger

	mu      sync.Mutex // guards the fields below
	leading bool
	changed chan struct{} // closed and replaced when leading changes
}

func newElection(leases coordinationv1.LeasesGetter, namespace, name, identity string, log *zap.Logger) *election {
	return &election{leases: leases, namespace: namespace, name: name, identity: identity, log: log, changed: make(chan struct{})}
}

// Changed returns a channel that is closed when this replica starts or stops leading.
func (e *election) Changed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

func (e *election) leads() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leading
}

func (e *election) set(leading bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leading == leading {
		return
	}
	e.leading = leading
	close(e.changed)
	e.changed = make(chan struct{})
	e.log.Info("leadership changed", zap.Bool("leads", leading))
}

// Run takes part in the election until ctx ends, and then releases the Lease.
func (e *election) Run(ctx context.Context) error {
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: e.namespace, Name: e.name},
		Client:     e.leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity},
	}
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { e.set(true) },
				OnStoppedLeading: func() { e.set(false) },
			},
		})
		if err != nil {
			return err
		}
		elector.Run(ctx) // returns when the Lease is lost
	}
	return nil
}
