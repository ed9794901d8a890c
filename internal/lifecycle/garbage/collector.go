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
	// Discovery is what is served now, nil when that is not known yet. It must not block, and must return the same pointer
	// as long as nothing has changed.
	Discovery func() *Discovery
	// Leads says whether this replica is the one that collects, and changed is closed when that may have changed.
	Leads func() (leads bool, changed <-chan struct{})
	// Events takes what is to be told about objects.
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
	return &Collector{cfg: cfg, rules: soundRules(), log: cfg.Logger.Named("garbage")}
}

// look is how often things are looked at that do not announce themselves: discovery, and a lease that ran out while etcd
// was away.
const look = time.Second

// Run blocks until ctx ends. Replicas that do not lead watch nothing: the graph is made anew in seconds, and to hold it
// everywhere would cost every replica what it costs one.
func (c *Collector) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		leads, changed := c.cfg.Leads()
		if leads {
			c.serve(ctx)
			continue
		}
		select {
		case <-changed:
		case <-time.After(look):
		case <-ctx.Done():
		}
	}
	return nil
}

// serve is one term of leading. It returns when everything that it started has.
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
			case <-time.After(look):
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
	// workers judge so many objects at a time.
	workers = 20
	// An object that failed is tried again after 5 ms, then twice as long each time up to a minute.
	firstAttempt, lastAttempt = 5 * time.Millisecond, time.Minute
)

// term is the collector while its replica leads: graph, monitors and queue are made anew for each, so that nothing that
// was true in an earlier one is believed.
type term struct {
	cfg      Config
	rules    rules
	log      *zap.Logger
	queue    workqueue.TypedRateLimitingInterface[key]
	graph    *graph
	monitors *monitors
	turns    *turns
	absences *absences
	events   *events
}

func newTerm(cfg Config, r rules, log *zap.Logger) *term {
	t := &term{cfg: cfg, rules: r, log: log, absences: newAbsences(), events: newEvents(cfg.Events, log)}
	t.graph = newGraph(t.wake, func(uid types.UID) { t.absences.buried.Add(uid, struct{}{}) })
	t.turns = newTurns(func(k key) { t.wake(k, 0) })
	t.monitors = newMonitors(cfg.Client, t.graph, cfg.Metrics.SyncErrors.Inc, log)
	return t
}

func (t *term) wake(k key, after time.Duration) { t.queue.AddAfter(k, after) }

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
			t.monitors.follow(ctx, d)
			last = d
		}
		t.turns.review(d)
		objects, synced, unsynced := t.graph.size()
		t.report(objects, synced, unsynced, t.queue.Len())
		if !run.Pause(ctx, look) {
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
	again, err := t.guarded(ctx, k)
	if ctx.Err() != nil {
		return true // the queue is shutting down
	}
	t.settle(k, again, err)
	return true
}

// settle says when an object is looked at again.
func (t *term) settle(k key, again time.Duration, err error) {
	var (
		busy   *busyError
		unsure *unsureError
		later  *laterError
	)
	switch {
	case errors.As(err, &busy):
		t.turns.await(busy.gv, k)
	case errors.As(err, &unsure):
		t.queue.Forget(k)
		t.turns.awaitChange(unsure.gv, k)
		t.log.Debug("an object is not judged now", zap.String("uid", string(k.uid)), zap.Error(err))
	case errors.As(err, &later):
		t.queue.AddAfter(k, later.after)
	case err != nil:
		if t.queue.NumRequeues(k) == 3 { // conflicts come and go; what stays is told once
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

// guarded turns a panic over one object into an error about it.
func (t *term) guarded(ctx context.Context, k key) (again time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			t.log.Error("the garbage collector panicked", zap.Any("panic", p), zap.Stack("stack"))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return t.attempt(ctx, k)
}

// kindOf is the kind of an object, for those who read about it. Metadata has come as a PartialObjectMetadata.
func (t *term) kindOf(at coordinates) schema.GroupVersionKind {
	kind := at.GroupVersion().WithKind("")
	if d := t.cfg.Discovery(); d != nil {
		if r, ok := d.lookup(at.GroupVersion()).resource(at.Resource); ok {
			kind.Kind = r.Kind
		}
	}
	return kind
}
