package apiservice

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	aggregatorlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
)

const registrationWorkers = 5

// registrar keeps the Local APIServices that the front door wants, by the table in decide.
type registrar struct {
	client aggregatorclient.APIServiceInterface
	lister aggregatorlisters.APIServiceLister
	wanted *wanted
	log    *zap.Logger
	queue  workqueue.TypedRateLimitingInterface[string]

	// atStart is the APIServices that this process found; written once, before the workers start.
	atStart sets.Set[string]

	mu sync.Mutex
	// replaced is the names whose APIService led to a backend until a moment ago: see replacementEnded.
	replaced sets.Set[string]
	// done is the names that were dealt with once.
	done sets.Set[string]
	// missing is the built-in names that were not; registered is closed when it empties.
	missing    sets.Set[string]
	registered chan struct{}
}

func newRegistrar(client aggregatorclient.APIServiceInterface, lister aggregatorlisters.APIServiceLister, w *wanted, log *zap.Logger) *registrar {
	return &registrar{
		client:     client,
		lister:     lister,
		wanted:     w,
		log:        log,
		replaced:   sets.New[string](),
		done:       sets.New[string](),
		missing:    sets.KeySet(w.builtIn),
		registered: make(chan struct{}),
	}
}

// prepare makes the queue. It is called by the controller's Run, because a workqueue has a goroutine from birth.
func (r *registrar) prepare() {
	r.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		// The start-up race with a store that is not up yet must not cost minutes: retries stay within 5 s.
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 5*time.Second),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "autoregister"},
	)
}

// run registers until ctx ends. The caches must have synced, the CRDs' too: otherwise the APIServices of CRDs that are
// still to be listed would be taken for leftovers and deleted.
func (r *registrar) run(ctx context.Context) error {
	existing, err := r.lister.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("register local apiservices: list: %w", err)
	}
	r.atStart = sets.New[string]()
	for _, o := range existing {
		r.atStart.Insert(o.Name)
		r.queue.Add(o.Name)
	}
	for name := range r.wanted.builtIn {
		r.queue.Add(name)
	}
	for name := range r.wanted.unlisted {
		r.log.Warn("local group-version has no known priority and gets no APIService", zap.String("apiservice", name))
	}
	if len(r.wanted.builtIn) == 0 {
		close(r.registered)
	}
	work(ctx, r.queue, registrationWorkers, func(name string) {
		if err := r.sync(ctx, name); err != nil {
			if ctx.Err() == nil {
				r.log.Warn("APIService is not registered yet", zap.String("apiservice", name), zap.Error(err))
			}
			r.queue.AddRateLimited(name)
			return
		}
		r.queue.Forget(name)
		r.finish(name)
	})
	return nil
}

func (r *registrar) finish(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done.Insert(name)
	if r.missing.Has(name) {
		r.missing.Delete(name)
		if r.missing.Len() == 0 {
			close(r.registered)
		}
	}
}

func (r *registrar) isDone(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done.Has(name)
}

func (r *registrar) sync(ctx context.Context, name string) error {
	current, err := r.lister.Get(name)
	if apierrors.IsNotFound(err) {
		current = nil
	} else if err != nil {
		return fmt.Errorf("get apiservice %s: %w", name, err)
	}
	want, err := r.wanted.get(name)
	if err != nil {
		return err
	}
	act := decide(current, want, r.atStart.Has(name), r.isDone(name))
	if r.restores(name, current, want) {
		act = update
	}
	if act == leave {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := r.apply(ctx, act, current, want); err != nil {
		return fmt.Errorf("%s apiservice %s: %w", act, name, err)
	}
	r.log.Debug("registered", zap.String("apiservice", name), zap.Stringer("action", act))
	return nil
}

// replacementEnded notes that an APIService led to a backend until a moment ago, and is local now. Whoever took the Service
// out of it wants the local group-version back, with the label and the priorities that it has here.
func (r *registrar) replacementEnded(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replaced.Insert(name)
}

// restores reports whether an APIService is to be ours again, and is not yet.
func (r *registrar) restores(name string, current, want *apiregistrationv1.APIService) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.replaced.Has(name) {
		return false
	}
	if current == nil || want == nil || current.Spec.Service != nil ||
		current.Labels[managedLabel] == want.Labels[managedLabel] && equality.Semantic.DeepEqual(current.Spec, want.Spec) {
		r.replaced.Delete(name)
		return false
	}
	return true
}

// apply performs an action. An object that is there or gone by now is not an error: its event is on its way and brings
// the name back. A conflict on update is one, or the single update that a built-in APIService gets would be lost.
func (r *registrar) apply(ctx context.Context, act action, current, want *apiregistrationv1.APIService) error {
	var err error
	switch act {
	case create:
		_, err = r.client.Create(ctx, want.DeepCopy(), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
	case update:
		changed := current.DeepCopy()
		changed.Spec = *want.Spec.DeepCopy()
		if changed.Labels[managedLabel] == "" {
			metav1.SetMetaDataLabel(&changed.ObjectMeta, managedLabel, want.Labels[managedLabel])
		}
		_, err = r.client.Update(ctx, changed, metav1.UpdateOptions{})
	case remove:
		// The precondition keeps us from deleting an object of that name which a user made a moment ago.
		err = r.client.Delete(ctx, current.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(current.UID))})
	}
	if apierrors.IsNotFound(err) || (act == remove && apierrors.IsConflict(err)) {
		return nil
	}
	return err
}
