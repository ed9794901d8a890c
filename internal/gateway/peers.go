package gateway

import (
	"context"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

const (
	replicaLabel       = "gateway.portico.dev/replica"
	verdictsAnnotation = "gateway.portico.dev/verdicts"
	// maxVerdicts limits the verdicts that a replica publishes: the annotations of an object have at most 256 KiB
	// together.
	maxVerdicts = 200 << 10
)

// peerTimes configures how often a replica shows that it is alive.
type peerTimes struct {
	// renew is how often its Lease is renewed, and gap the minimum time between two writes.
	renew, gap time.Duration
	// dead is how long the Lease of another replica may be unchanged before the replica counts as dead, and forget
	// when the Lease is deleted.
	dead, forget time.Duration
}

var defaultPeerTimes = peerTimes{renew: 10 * time.Second, gap: time.Second, dead: 35 * time.Second, forget: 10 * time.Minute}

// peers exchanges verdicts between the replicas: each has a Lease, with its verdicts in an annotation. The leader of
// the election combines them into the conditions. peers implements apiservice.Peers. Serving requests does not depend
// on it.
type peers struct {
	*election
	client coordinationclient.LeaseInterface
	times  peerTimes
	log    *zap.Logger
	// server is checked for support of watches with initial events, because fakes do not have it. Nil: supported.
	server any
	dirty  chan struct{} // has a token while own must be written

	mu      sync.Mutex // guards the fields below
	own     []byte
	others  map[string]peer // by the name of the Lease
	changed chan struct{}   // closed and replaced when others change
}

// peer is another replica. Because clocks differ, it counts as dead if this replica has not seen a renewal for long.
type peer struct {
	verdicts []byte
	version  string
	seen     time.Time
}

func newPeers(e *election, client coordinationclient.LeaseInterface, times peerTimes, log *zap.Logger) *peers {
	return &peers{election: e, client: client, times: times, log: log, dirty: make(chan struct{}, 1), others: map[string]peer{}, changed: make(chan struct{})}
}

// leaseName returns the name of this replica's Lease.
func (p *peers) leaseName() string { return p.name + "-replica-" + p.identity }

// Publish implements apiservice.Peers.
func (p *peers) Publish(value []byte) {
	if len(value) > maxVerdicts {
		value = nil // the leader then uses only its own verdicts
	}
	p.mu.Lock()
	p.own = value
	p.mu.Unlock()
	select {
	case p.dirty <- struct{}{}:
	default:
	}
}

// Received implements apiservice.Peers.
func (p *peers) Received() (map[string][]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string][]byte, len(p.others))
	for name, o := range p.others {
		if time.Since(o.seen) < p.times.dead {
			out[name] = o.verdicts
		}
	}
	return out, p.leads()
}

// Changed implements apiservice.Peers.
func (p *peers) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

func (p *peers) announce() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

// Run exchanges verdicts until ctx ends, and then removes the Lease.
func (p *peers) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = replicaLabel
			return p.client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = replicaLabel
			return p.client.Watch(ctx, o)
		},
	}, p.server), &coordinationv1.Lease{}, 0, cache.Indexers{})
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: p.updateReplica, UpdateFunc: func(_, o any) { p.updateReplica(o) }, DeleteFunc: p.removeReplica,
	}); err != nil {
		return err
	}
	wg.Go(func() { informer.RunWithContext(ctx) })
	wg.Go(func() { p.followElection(ctx) })
	p.renew(ctx)
	return nil
}

// followElection announces changes of the leader, because the conditions also depend on it.
func (p *peers) followElection(ctx context.Context) {
	for ctx.Err() == nil {
		changed := p.election.Changed()
		p.announce()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// renew writes the Lease until ctx ends, and then deletes it.
func (p *peers) renew(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.write(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("failed to publish the verdicts of this replica; retrying", zap.Error(err))
		}
		p.bury(ctx)
		wait := time.NewTimer(p.times.gap)
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Reset(p.times.renew - p.times.gap)
		select {
		case <-wait.C:
		case <-p.dirty:
		case <-ctx.Done():
		}
		wait.Stop()
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysTimeout)
	defer cancel()
	if err := p.client.Delete(ending, p.leaseName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		p.log.Debug("failed to delete the Lease of this replica", zap.Error(err))
	}
}

func (p *peers) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	p.mu.Lock()
	own := string(p.own)
	p.mu.Unlock()
	lease, err := p.client.Get(ctx, p.leaseName(), metav1.GetOptions{})
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return err
	}
	if absent {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: p.leaseName(), Labels: map[string]string{replicaLabel: ""}}}
	}
	lease = lease.DeepCopy()
	lease.Annotations = map[string]string{verdictsAnnotation: own}
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: &p.identity, LeaseDurationSeconds: ptr.To(int32(p.times.dead/time.Second) + 1), RenewTime: ptr.To(metav1.NowMicro()),
	}
	if absent {
		_, err = p.client.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = p.client.Update(ctx, lease, metav1.UpdateOptions{})
	}
	return err
}

// updateReplica processes the Lease of a replica.
func (p *peers) updateReplica(o any) {
	lease, ok := o.(*coordinationv1.Lease)
	if !ok || lease.Name == p.leaseName() {
		return
	}
	p.mu.Lock()
	before, known := p.others[lease.Name]
	if known && lease.ResourceVersion != "" && before.version == lease.ResourceVersion { // the same version was listed again
		p.mu.Unlock()
		return
	}
	now := peer{verdicts: []byte(lease.Annotations[verdictsAnnotation]), version: lease.ResourceVersion, seen: time.Now()}
	p.others[lease.Name] = now
	news := !known || string(before.verdicts) != string(now.verdicts) || now.seen.Sub(before.seen) >= p.times.dead
	p.mu.Unlock()
	if news {
		p.announce()
	}
}

func (p *peers) removeReplica(o any) {
	if final, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = final.Obj
	}
	if lease, ok := o.(*coordinationv1.Lease); ok {
		p.mu.Lock()
		delete(p.others, lease.Name)
		p.mu.Unlock()
		p.announce()
	}
}

// bury announces dead replicas, and deletes the Leases of replicas that have been dead for long.
func (p *peers) bury(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	p.mu.Lock()
	all := maps.Clone(p.others)
	p.mu.Unlock()
	for name, o := range all {
		switch silent := time.Since(o.seen); {
		case silent >= p.times.forget && p.leads():
			if err := p.client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewRVDeletionPrecondition(o.version).Preconditions}); err != nil {
				p.log.Debug("failed to delete the Lease of a dead replica", zap.String("lease", name), zap.Error(err))
			}
		case silent >= p.times.dead && silent < p.times.dead+2*p.times.renew:
			p.announce()
		}
	}
}
