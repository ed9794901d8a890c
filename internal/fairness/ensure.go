package fairness

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	informers "k8s.io/client-go/informers/flowcontrol/v1"
	client "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
	"k8s.io/client-go/tools/cache"
)

// ensureInterval is the interval between comparisons of the objects with their desired state. A deleted object is recreated
// immediately. Changes are reverted at the next comparison, so that replicas of two releases do not continuously overwrite each
// other's objects.
const ensureInterval = time.Minute

// startTimeout bounds the time until the objects are listed and all of them are written.
const startTimeout = 30 * time.Second

// ensurer maintains the objects that kube-apiserver creates. It reads caches, and writes only differences.
type ensurer struct {
	schemas *ensuredKind[*flowcontrolv1.FlowSchema]
	levels  *ensuredKind[*flowcontrolv1.PriorityLevelConfiguration]
	synced  []cache.DoneChecker
	deleted chan struct{} // contains an element after an object was deleted
	// withoutEtcd, if set, reports whether writes are impossible now.
	withoutEtcd func() bool
}

func newEnsurer(api client.FlowcontrolV1Interface, known informers.Interface) (*ensurer, error) {
	e := &ensurer{deleted: make(chan struct{}, 1)}
	e.schemas = &ensuredKind[*flowcontrolv1.FlowSchema]{
		api: api.FlowSchemas(), list: known.FlowSchemas().Lister().List,
		mandatory: bootstrap.MandatoryFlowSchemas, suggested: bootstrap.SuggestedFlowSchemas,
		adopt: func(have, want *flowcontrolv1.FlowSchema) bool {
			same := apiequality.Semantic.DeepEqual(have.Spec, want.Spec)
			have.Spec = *want.Spec.DeepCopy()
			return !same
		},
	}
	e.levels = &ensuredKind[*flowcontrolv1.PriorityLevelConfiguration]{
		api: api.PriorityLevelConfigurations(), list: known.PriorityLevelConfigurations().Lister().List,
		mandatory: bootstrap.MandatoryPriorityLevelConfigurations, suggested: bootstrap.SuggestedPriorityLevelConfigurations,
		adopt: adoptLevel,
	}
	for _, informer := range []cache.SharedIndexInformer{known.FlowSchemas().Informer(), known.PriorityLevelConfigurations().Informer()} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) {
			select {
			case e.deleted <- struct{}{}:
			default:
			}
		}})
		if err != nil {
			return nil, err
		}
		e.synced = append(e.synced, informer.HasSyncedChecker())
	}
	return e, nil
}

// adoptLevel sets the spec of have to the spec of want. It keeps the shares of the exempt level, with which an administrator
// controls how many of its unused seats other levels may borrow.
func adoptLevel(have, want *flowcontrolv1.PriorityLevelConfiguration) bool {
	spec := want.Spec.DeepCopy()
	setDefaults(spec)
	if want.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt && have.Spec.Exempt != nil {
		spec.Exempt = have.Spec.Exempt.DeepCopy()
	}
	same := apiequality.Semantic.DeepEqual(have.Spec, *spec)
	have.Spec = *spec
	return !same
}

// setDefaults sets the API's defaults, so that a stored object compares equal.
func setDefaults(spec *flowcontrolv1.PriorityLevelConfigurationSpec) {
	if spec.Limited != nil && spec.Limited.LendablePercent == nil {
		spec.Limited.LendablePercent = new(int32)
	}
}

var errNoSync = errors.New("list the flowcontrol objects: no answer in time")

// start returns when the objects are listed and in their desired state.
func (e *ensurer) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if !cache.WaitFor(ctx, "", e.synced...) {
		return errNoSync
	}
	if e.withoutEtcd != nil && e.withoutEtcd() {
		return nil // run writes them
	}
	return e.ensureUntilDone(ctx)
}

// retryAfter is how long a cache may take to receive another replica's write.
const retryAfter = 100 * time.Millisecond

// ensureUntilDone retries until every object is in its desired state or ctx ends.
func (e *ensurer) ensureUntilDone(ctx context.Context) error {
	for {
		err := e.ensureOnce(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryAfter):
		}
	}
}

func (e *ensurer) run(ctx context.Context, log *zap.Logger) {
	tick := time.NewTicker(ensureInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-e.deleted:
		}
		if e.withoutEtcd != nil && e.withoutEtcd() {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, startTimeout)
		err := e.ensureUntilDone(bounded)
		cancel()
		if err != nil && ctx.Err() == nil {
			log.Warn("failed to reconcile the flowcontrol objects; retrying", zap.Duration("in", ensureInterval), zap.Error(err))
		}
	}
}

// ensureOnce writes levels first, because a schema without its level is reported as dangling.
func (e *ensurer) ensureOnce(ctx context.Context) error {
	return errors.Join(e.levels.ensureOnce(ctx), e.schemas.ensureOnce(ctx))
}

// object is a pointer to one of the two kinds.
type object[T any] interface {
	metav1.Object
	comparable
	DeepCopy() T
}

// ensuredKind manages the objects of one kind.
type ensuredKind[T object[T]] struct {
	api interface {
		Create(ctx context.Context, object T, o metav1.CreateOptions) (T, error)
		Update(ctx context.Context, object T, o metav1.UpdateOptions) (T, error)
		Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
	}
	list                 func(labels.Selector) ([]T, error)
	mandatory, suggested []T
	// adopt sets the spec of have to the spec of want, and reports whether it changed.
	adopt func(have, want T) bool
}

func (k *ensuredKind[T]) ensureOnce(ctx context.Context) error {
	found, err := k.list(labels.Everything())
	if err != nil {
		return err
	}
	others := make(map[string]T, len(found))
	for _, o := range found {
		others[o.GetName()] = o
	}
	var errs []error
	for i, want := range append(append([]T(nil), k.mandatory...), k.suggested...) {
		if err := k.ensure(ctx, others[want.GetName()], want, i < len(k.mandatory)); err != nil {
			errs = append(errs, fmt.Errorf("keep %s: %w", want.GetName(), err))
		}
		delete(others, want.GetName())
	}
	for name, o := range others {
		if err := k.deleteObsolete(ctx, o); err != nil {
			errs = append(errs, fmt.Errorf("delete %s, which no release suggests any more: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// ensure writes one object if it is missing or differs from its desired state. The annotation of a suggested object determines
// its owner: this program if it is "true", an administrator if it is "false". An object without the annotation belongs to this
// program only if its spec has not changed since its creation.
func (k *ensuredKind[T]) ensure(ctx context.Context, have, want T, mandatory bool) error {
	var none T
	if have == none {
		_, err := k.api.Create(ctx, want.DeepCopy(), metav1.CreateOptions{})
		return err
	}
	next, ours := have.DeepCopy(), "true"
	if said := have.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey]; !mandatory {
		switch {
		case said == "true" || said == "false":
			ours = said
		case have.GetGeneration() != 1:
			ours = "false"
		}
	}
	changed := ours == "true" && k.adopt(next, want)
	if annotate(next, ours) || changed {
		_, err := k.api.Update(ctx, next, metav1.UpdateOptions{})
		return err
	}
	return nil
}

func annotate(o metav1.Object, ours string) (changed bool) {
	annotations := o.GetAnnotations()
	if annotations[flowcontrolv1.AutoUpdateAnnotationKey] == ours {
		return false
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[flowcontrolv1.AutoUpdateAnnotationKey] = ours
	o.SetAnnotations(annotations)
	return true
}

// deleteObsolete deletes an object that an earlier release created, if that release still owns it.
func (k *ensuredKind[T]) deleteObsolete(ctx context.Context, o T) error {
	if o.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey] != "true" {
		return nil
	}
	uid, version := o.GetUID(), o.GetResourceVersion()
	err := k.api.Delete(ctx, o.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
