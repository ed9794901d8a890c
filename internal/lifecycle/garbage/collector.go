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

// Config configures the collector. Every field is required.
type Config struct {
	// Client reaches every group-version, local or not, as the front door routes it. The caller sets its rate limits.
	Client metadata.Interface
	// Hidden reaches the objects that this server stores in group-versions served by extension servers.
	Hidden metadata.Interface
	// Discovery returns the group-versions served now, or nil if they are not known yet. It must not block, and must return the
	// same pointer until something changes.
	Discovery func() *Discovery
	// Leads reports whether this replica leads. changed is closed when that may have changed.
	Leads func() (leads bool, changed <-chan struct{})
	// Events writes Events about objects.
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

// New returns a Collector that is idle until Run.
func New(cfg Config) *Collector {
	return &Collector{cfg: cfg, rules: defaultRules(), log: cfg.Logger.Named("garbage")}
}

// pollInterval is the interval at which discovery and leadership are checked. The expiration of a lease while etcd is
// unavailable sends no notification.
const pollInterval = time.Second

// Run collects garbage until ctx ends. Followers watch nothing: the graph is built in seconds, and would cost each of them as
// much memory as the leader.
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

// serve runs one term as leader. It returns after all its goroutines have returned.
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
		c.log.Info("lost leadership; garbage collection stopped")
	}
	cancel(nil)
	<-watched
}

const (
	// workers is the number of objects processed concurrently.
	workers = 20
	// A failed object is retried after 5 ms, then after a delay that doubles each time, up to 15 s.
	firstAttempt, lastAttempt = 5 * time.Millisecond, 15 * time.Second
)

// term is the collector during one period of leadership. Each term has a new graph, new monitors and a new queue, so that it
// does not rely on old state.
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
		workqueue.TypedRateLimitingQueueConfig[key]{Name: "garbage", Clock: run.QueueClock})
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
		t.log.Debug("deferred the garbage collection of an object", zap.String("uid", string(k.uid)), zap.Error(err))
	case errors.As(err, &later):
		t.queue.AddAfter(k, later.after)
	case err != nil:
		if t.queue.NumRequeues(k) == 3 { // conflicts are normal; a persistent error is logged once
			t.log.Warn("failed to process an object for garbage collection; retrying", zap.Stringer("resource", k.resource), zap.String("uid", string(k.uid)), zap.Error(err))
		}
		t.queue.AddRateLimited(k)
	default:
		t.queue.Forget(k)
		if again > 0 {
			t.queue.AddAfter(k, again)
		}
	}
}

// processRecovered converts a panic during the processing of an object into an error.
func (t *term) processRecovered(ctx context.Context, k key) (again time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			t.log.Error("garbage collector panicked", zap.Any("panic", p), zap.Stack("stack"))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return t.process(ctx, k)
}

// kindOf returns the kind of an object, for Events. The metadata of the object arrived as a PartialObjectMetadata, which lacks
// it.
func (t *term) kindOf(at coordinates) schema.GroupVersionKind {
	kind := at.GroupVersion().WithKind("")
	if d := t.cfg.Discovery(); d != nil {
		if r, ok := d.find(at.GroupVersion(), at.hidden).resource(at.Resource); ok {
			kind.Kind = r.Kind
		}
	}
	return kind
}
