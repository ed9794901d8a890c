package garbage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"

	"portico.dev/internal/metrics"
	"portico.dev/internal/run"
)

// Config is what the collector needs. Every field is required.
type Config struct {
	// Client reaches every group-version, local or not, as the front door routes it. Its rate limits are the caller's.
	Client metadata.Interface
	// Hidden reaches what this server stores of group-versions that extension servers serve.
	Hidden metadata.Interface
	// Discovery is what is served now, nil when that is not known yet. It must not block, and must return the same pointer
	// as long as nothing has changed.
	Discovery func() *Discovery
	// Leads reports whether this replica leads; changed is closed when that may have changed.
	Leads func() (leads bool, changed <-chan struct{})
	// Events is where Events about objects are written.
	Events  corev1client.EventsGetter
	Metrics *metrics.Garbage
	Logger  *zap.Logger
}

// Collector collects garbage while its replica leads.
type Collector struct {
	cfg   Config
	rules rules
	log   *zap.Logger
}

// New prepares a collector.
func New(cfg Config) *Collector {
	return &Collector{cfg: cfg, rules: defaultRules(), log: cfg.Logger.Named("garbage")}
}

// pollInterval is how often discovery is compared, and leadership is checked: a lease that expires while etcd is away is
// not announced.
const pollInterval = time.Second

// Run collects garbage until ctx ends. Replicas that do not lead watch nothing: the graph is built in seconds, and would
// cost each of them as much memory as the leader.
func (c *Collector) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		leads, changed := c.cfg.Leads()
		if leads {
			c.serve(ctx)
			continue
		}
		select {
		case <-changed:
		case <-time.After(pollInterval):
		case <-ctx.Done():
		}
	}
	return nil
}

// serve is one term as leader. It returns when everything that it started has returned.
func (c *Collector) serve(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := newTerm(c.cfg, c.rules, c.log)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for ctx.Err() == nil {
			leads, changed := c.cfg.Leads()
			if !leads {
				cancel(errNotLeading)
				return
			}
			select {
			case <-changed:
			case <-time.After(pollInterval):
			case <-ctx.Done():
			}
		}
	}()
	t.run(ctx)
	if errors.Is(context.Cause(ctx), errNotLeading) {
		c.log.Info("another replica leads; this one collects no more")
	}
	cancel(nil)
	<-watched
}

const (
	// workers is how many objects are processed concurrently.
	workers = 20
	// An object that failed is tried again after 5 ms, then twice as long each time up to 15 s.
	firstAttempt, lastAttempt = 5 * time.Millisecond, 15 * time.Second
)

// term is the collector while its replica leads. Each term has a new graph, new monitors and a new queue, so that it does
// not rely on old state.
type term struct {
	cfg        Config
	rules      rules
	log        *zap.Logger
	queue      workqueue.TypedRateLimitingInterface[key]
	graph      *graph
	monitors   *monitors
	limiter    *limiter
	goneOwners *goneOwners
	events     *events
}

func newTerm(cfg Config, r rules, log *zap.Logger) *term {
	t := &term{cfg: cfg, rules: r, log: log, goneOwners: newGoneOwners(), events: newEvents(cfg.Events, log)}
	t.graph = newGraph(t.enqueue, func(uid types.UID) { t.goneOwners.deletedUIDs.Add(uid, struct{}{}) })
	t.limiter = newLimiter(func(k key) { t.enqueue(k, 0) })
	t.monitors = newMonitors(cfg.Client, cfg.Hidden, t.graph, cfg.Metrics.SyncErrors.Inc, log)
	return t
}

func (t *term) enqueue(k key, after time.Duration) { t.queue.AddAfter(k, after) }

func (t *term) leads() bool {
	leads, _ := t.cfg.Leads()
	return leads
}

// run blocks until ctx ends and workers and monitors have returned.
func (t *term) run(ctx context.Context) {
	t.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[key](firstAttempt, lastAttempt),
		workqueue.TypedRateLimitingQueueConfig[key]{Name: "garbage"})
	ctx, cancel := context.WithCancel(ctx)
	var joined sync.WaitGroup
	defer t.report(0, 0, 0, 0)
	defer joined.Wait()
	defer t.monitors.wait()
	defer t.queue.ShutDown()
	defer cancel()
	for range workers {
		joined.Go(func() {
			for t.next(ctx) {
			}
		})
	}
	var last *Discovery
	for {
		d := t.cfg.Discovery()
		if d != last {
			t.monitors.update(ctx, d)
			last = d
		}
		t.limiter.enqueueReady(d)
		objects, synced, unsynced := t.graph.size()
		t.report(objects, synced, unsynced, t.queue.Len())
		if !run.Pause(ctx, pollInterval) {
			return
		}
	}
}

func (t *term) report(objects, synced, unsynced, depth int) {
	m := t.cfg.Metrics
	m.Objects.Set(float64(objects))
	m.Depth.Set(float64(depth))
	m.Monitors.WithLabelValues("synced").Set(float64(synced))
	m.Monitors.WithLabelValues("waiting").Set(float64(unsynced))
}

func (t *term) next(ctx context.Context) bool {
	k, shutdown := t.queue.Get()
	if shutdown {
		return false
	}
	defer t.queue.Done(k)
	again, err := t.processRecovered(ctx, k)
	if ctx.Err() != nil {
		return true // the queue is shutting down
	}
	t.requeue(k, again, err)
	return true
}

// requeue decides when an object is processed again.
func (t *term) requeue(k key, again time.Duration, err error) {
	var (
		busy   *busyError
		unsure *undecidedError
		later  *retryLaterError
	)
	switch {
	case errors.As(err, &busy):
		t.limiter.wait(busy.gv, k)
	case errors.As(err, &unsure):
		t.queue.Forget(k)
		t.limiter.waitForChange(unsure.gv, k)
		t.log.Debug("an object is not judged now", zap.String("uid", string(k.uid)), zap.Error(err))
	case errors.As(err, &later):
		t.queue.AddAfter(k, later.after)
	case err != nil:
		if t.queue.NumRequeues(k) == 3 { // conflicts are normal; what persists is logged once
			t.log.Warn("an object cannot be judged, trying again", zap.Stringer("resource", k.resource), zap.String("uid", string(k.uid)), zap.Error(err))
		}
		t.queue.AddRateLimited(k)
	default:
		t.queue.Forget(k)
		if again > 0 {
			t.queue.AddAfter(k, again)
		}
	}
}

// processRecovered turns a panic about one object into an error.
func (t *term) processRecovered(ctx context.Context, k key) (again time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			t.log.Error("the garbage collector panicked", zap.Any("panic", p), zap.Stack("stack"))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return t.process(ctx, k)
}

// kindOf returns the kind of an object, for Events: its metadata came as a PartialObjectMetadata.
func (t *term) kindOf(at coordinates) schema.GroupVersionKind {
	kind := at.GroupVersion().WithKind("")
	if d := t.cfg.Discovery(); d != nil {
		if r, ok := d.find(at.GroupVersion(), at.hidden).resource(at.Resource); ok {
			kind.Kind = r.Kind
		}
	}
	return kind
}
