package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"portico.dev/internal/run"
)

// A failed namespace is tried again after 5 ms, then twice as long each time up to a minute, as upstream does.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = time.Minute
)

// loop reconciles namespaces by name. A name is never in two hands at once.
type loop struct {
	name    string
	workers int
	// reconcile brings one namespace to where it should be. again > 0: look again after that time. An error: look again
	// after a backoff.
	reconcile func(ctx context.Context, namespace string) (again time.Duration, err error)
	// settle delays what an event asks for.
	settle time.Duration
	// every, when positive, looks at all namespaces of the first source that often.
	every time.Duration
	// changed, if any, each return a channel that is closed when something changed that may let waiting namespaces go on.
	changed []func() <-chan struct{}
	waiting func() []string
	// election, if any, says when this replica is the one that reconciles. Until then names gather.
	election election
	log      *zap.Logger
}

// source is an informer whose events concern namespaces.
type source struct {
	informer cache.SharedIndexInformer
	// namespace names the namespace an object concerns; empty: none.
	namespace func(obj any) string
	// owned informers are run by the loop; the others by whoever passed them in.
	owned bool
}

// run blocks until ctx ends and its workers and informers have returned.
func (l *loop) run(ctx context.Context, sources ...source) error {
	ctx, cancel := context.WithCancel(ctx)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: l.name})
	var joined sync.WaitGroup
	defer joined.Wait()
	defer queue.ShutDown()
	defer cancel()

	for _, s := range sources {
		if s.owned {
			joined.Go(func() { s.informer.RunWithContext(ctx) })
		}
		registration, err := s.informer.AddEventHandler(l.handler(s, queue))
		if ctx.Err() != nil {
			return nil // an informer that ended with us takes no handler
		}
		if err != nil {
			return fmt.Errorf("%s: watch: %w", l.name, err)
		}
		defer func() { _ = s.informer.RemoveEventHandler(registration) }() // fails only when the informer has ended too
		if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
			return nil // ctx ended first
		}
	}
	for range l.workers {
		joined.Go(func() {
			for l.election.await(ctx) && l.next(ctx, queue) {
			}
		})
	}
	for _, changed := range l.changed {
		joined.Go(func() { l.wake(ctx, changed, queue) })
	}
	l.tick(ctx, sources[0], queue)
	return nil
}

func (l *loop) handler(s source, queue workqueue.TypedRateLimitingInterface[string]) cache.ResourceEventHandler {
	enqueue := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if ns := s.namespace(obj); ns != "" {
			queue.AddAfter(ns, l.settle)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
		DeleteFunc: enqueue,
	}
}

func (l *loop) next(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string]) bool {
	ns, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(ns)
	if !l.election.won() {
		queue.Add(ns) // another replica leads by now; should it die, this one knows what to look at
		return true
	}
	again, err := l.guarded(ctx, ns)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		l.log.Warn("namespace not reconciled, trying again", zap.String("controller", l.name),
			zap.String("namespace", ns), zap.Int("attempt", queue.NumRequeues(ns)+1), zap.Error(err))
		queue.AddRateLimited(ns)
	case again > 0:
		queue.Forget(ns)
		queue.AddAfter(ns, again)
	default:
		queue.Forget(ns)
	}
	return true
}

// guarded turns a panic over one namespace into an error about it: the others must not wait for a restart.
func (l *loop) guarded(ctx context.Context, ns string) (again time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("controller panicked", zap.String("controller", l.name), zap.Any("panic", p), zap.Stack("stack"))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return l.reconcile(ctx, ns)
}

// wakeGap is the least time between two wakes, so that a storm of changes is a few of them.
const wakeGap = 200 * time.Millisecond

// wake looks at the namespaces that wait whenever something changes, until ctx ends.
func (l *loop) wake(ctx context.Context, changed func() <-chan struct{}, queue workqueue.TypedRateLimitingInterface[string]) {
	for next := changed(); ; {
		select {
		case <-ctx.Done():
			return
		case <-next:
		}
		next = changed() // before the look: a change in between is seen again rather than missed
		for _, ns := range l.waiting() {
			queue.Add(ns)
		}
		if !run.Pause(ctx, wakeGap) {
			return
		}
	}
}

// waiting is the namespaces that were looked at and are not done. Those that were not looked at yet are left to settle.
type waiting struct {
	mu    sync.Mutex // guards names
	names map[string]bool
}

func (w *waiting) set(name string, waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.names == nil {
		w.names = map[string]bool{}
	}
	if w.names[name] = waits; !waits {
		delete(w.names, name)
	}
}

func (w *waiting) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.names))
}

// tick blocks until ctx ends, and meanwhile asks for every namespace now and then.
func (l *loop) tick(ctx context.Context, s source, queue workqueue.TypedRateLimitingInterface[string]) {
	if l.every <= 0 {
		<-ctx.Done()
		return
	}
	for run.Pause(ctx, l.every) {
		for _, obj := range s.informer.GetStore().List() {
			if ns := s.namespace(obj); ns != "" {
				queue.AddAfter(ns, l.settle)
			}
		}
	}
}
