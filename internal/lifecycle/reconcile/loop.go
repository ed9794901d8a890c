// Package reconcile contains the common parts of the controllers: the work queue loop, leader election, and helpers for
// objects.
package reconcile

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"portico.dev/internal/logging"
	"portico.dev/internal/run"
)

// MinRetry is the pause before a failed key is retried. It doubles with each failure, up to MaxRetry. kube-controller-manager's
// limit is 1000 s. This one is lower, because after an outage of etcd or of a backend a key waits for the full pause.
const (
	MinRetry = 5 * time.Millisecond
	MaxRetry = 15 * time.Second
)

// Loop reconciles keys, such as names of namespaces. A key is never reconciled by two workers at once.
type Loop struct {
	// Name is the controller's name in logs and metrics.
	Name    string
	Workers int
	// Reconcile brings the objects behind a key to their desired state. If again is positive, the key is reconciled again after
	// that time. If it returns an error, the key is retried after a backoff.
	Reconcile func(ctx context.Context, key string) (again time.Duration, err error)
	// Delay is the time between an event and the reconciliation of its key. Default 0.
	Delay time.Duration
	// Resync, if positive, is the interval at which all objects of the first source are reconciled.
	Resync time.Duration
	// Changed contains functions that each return a channel that is closed when the keys returned by Waiting must be
	// reconciled.
	Changed []func() <-chan struct{}
	Waiting func() []string
	// Election decides when this replica reconciles. Until then keys wait in the queue. Default nil: always.
	Election Election
	Log      *zap.Logger
}

// Source is an informer with a mapping from its objects to keys.
type Source struct {
	Informer cache.SharedIndexInformer
	// Key returns the key of an object, or "" if the object is irrelevant.
	Key func(obj any) string
	// Owned informers are run by the loop. Other informers must be run by the caller.
	Owned bool
}

// Run blocks until ctx ends and its workers and informers have returned.
func (l *Loop) Run(ctx context.Context, sources ...Source) error {
	ctx, cancel := context.WithCancel(ctx)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](MinRetry, MaxRetry),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: l.Name, Clock: run.QueueClock})
	var joined sync.WaitGroup
	defer joined.Wait()
	defer queue.ShutDown()
	defer cancel()

	for _, s := range sources {
		if s.Owned {
			joined.Go(func() { s.Informer.RunWithContext(ctx) })
		}
		registration, err := s.Informer.AddEventHandler(l.handler(s, queue))
		if ctx.Err() != nil {
			return nil // a stopped informer does not accept handlers
		}
		if err != nil {
			return fmt.Errorf("%s: watch: %w", l.Name, err)
		}
		defer func() { _ = s.Informer.RemoveEventHandler(registration) }() // fails only if the informer has ended too
		if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
			return nil // ctx ended first
		}
	}
	for range l.Workers {
		joined.Go(func() {
			for l.Election.Wait(ctx) && l.next(ctx, queue) {
			}
		})
	}
	for _, changed := range l.Changed {
		joined.Go(func() { l.requeueWaiting(ctx, changed, queue) })
	}
	l.resync(ctx, sources[0], queue)
	return nil
}

func (l *Loop) handler(s Source, queue workqueue.TypedRateLimitingInterface[string]) cache.ResourceEventHandler {
	enqueue := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if key := s.Key(obj); key != "" {
			queue.AddAfter(key, l.Delay)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
		DeleteFunc: enqueue,
	}
}

func (l *Loop) next(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string]) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	if !l.Election.Leads() {
		queue.Add(key) // another replica leads; if it fails, this one has the keys to reconcile
		return true
	}
	again, err := l.reconcileRecovered(ctx, key)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		failures := queue.NumRequeues(key)
		l.Log.Log(logging.RetryLevel(failures), "reconciliation failed; retrying", zap.String("controller", l.Name),
			zap.String("key", key), zap.Int("attempt", failures+1), zap.Error(err))
		queue.AddRateLimited(key)
	case again > 0:
		queue.Forget(key)
		queue.AddAfter(key, again)
	default:
		queue.Forget(key)
	}
	return true
}

// reconcileRecovered converts a panic during the reconciliation of one key into an error, so that other keys do not wait for a
// restart.
func (l *Loop) reconcileRecovered(ctx context.Context, key string) (again time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			l.Log.Error("controller panicked", zap.String("controller", l.Name), zap.Any("panic", p), zap.Stack("stack"))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return l.Reconcile(ctx, key)
}

// RequeueGap is the minimum time between two requeues of the waiting keys.
const RequeueGap = 200 * time.Millisecond

// requeueWaiting reconciles the waiting keys after every change, until ctx ends.
func (l *Loop) requeueWaiting(ctx context.Context, changed func() <-chan struct{}, queue workqueue.TypedRateLimitingInterface[string]) {
	for next := changed(); ; {
		select {
		case <-ctx.Done():
			return
		case <-next:
		}
		next = changed() // obtained first, so that a change in between is handled twice rather than missed
		for _, key := range l.Waiting() {
			queue.Add(key)
		}
		if !run.Pause(ctx, RequeueGap) {
			return
		}
	}
}

// resync reconciles every object at the interval Resync. It blocks until ctx ends.
func (l *Loop) resync(ctx context.Context, s Source, queue workqueue.TypedRateLimitingInterface[string]) {
	if l.Resync <= 0 {
		<-ctx.Done()
		return
	}
	for run.Pause(ctx, l.Resync) {
		for _, obj := range s.Informer.GetStore().List() {
			if key := s.Key(obj); key != "" {
				queue.AddAfter(key, l.Delay)
			}
		}
	}
}

// Election reports whether this replica leads, and returns a channel that is closed when that changes. Nil means that this is
// the only replica.
//
// It is not a lock: a replica may learn late that another replica leads. Therefore every write of a controller has a
// precondition, or is the same on every replica. All informers run in all replicas, so that a new leader does not have to read
// anything first.
type Election func() (leads bool, changed <-chan struct{})

// pollInterval is the interval at which a follower checks leadership. The expiration of a lease while etcd is unavailable is
// announced late.
const pollInterval = time.Second

// Leads reports whether this replica leads.
func (e Election) Leads() bool {
	if e == nil {
		return true
	}
	leads, _ := e()
	return leads
}

// Wait blocks until this replica leads, and then returns true, or until ctx ends.
func (e Election) Wait(ctx context.Context) bool {
	for e != nil {
		leads, changed := e()
		if leads {
			break
		}
		timer := time.NewTimer(pollInterval)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
	return ctx.Err() == nil
}
