package quota

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	limits "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	quota "k8s.io/apiserver/pkg/quota/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"portico.dev/internal/clients"
)

// Admission is the plugin ResourceQuota. It is last in the chain, so that no refused request is charged.
type Admission struct {
	*admission.Handler
	quotas corelisters.ResourceQuotaLister
	client clients.Interface
	// limited contains the resources that may be used only if a quota covers them.
	limited []limits.LimitedResource
	locks   *keyedMutex
}

var _ admission.ValidationInterface = (*Admission)(nil)

// New returns the plugin for the quotas of lister. client bypasses any cache to read and write quotas. limited contains the
// resources that may be used only if a quota covers them.
func New(lister corelisters.ResourceQuotaLister, client clients.Interface, limited []limits.LimitedResource) *Admission {
	return &Admission{admission.NewHandler(admission.Create, admission.Update), lister, client, limited, newKeyedMutex()}
}

// Validate charges the usage of the request to every quota of the namespace, or refuses the request and charges none.
func (p *Admission) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	resource := a.GetResource().GroupResource()
	if a.GetNamespace() == "" || resource == corev1.Resource("namespaces") || uncounted(resource) {
		return nil
	}
	evaluator := evaluatorFor(resource, nil, newClusterDevices(ctx, p.client), time.Now)
	if !evaluator.Handles(a) {
		return nil
	}
	known, err := p.quotas.ResourceQuotas(a.GetNamespace()).List(labels.Everything())
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("list resourcequotas: %w", err))
	}
	if p.covered(known, a, evaluator) != nil {
		if known, err = p.current(ctx, a.GetNamespace()); err != nil { // the cache may lack a new quota
			return err
		}
		if err := p.covered(known, a, evaluator); err != nil {
			return err
		}
	}
	// A fixed order ensures that one of two requests competing for the rest of two quotas gets both.
	slices.SortFunc(known, func(a, b *corev1.ResourceQuota) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	var charged []charge
	for _, q := range known {
		c, err := p.charge(ctx, q, a, evaluator)
		if err != nil {
			p.refund(ctx, charged)
			return err
		}
		if len(c.used) > 0 {
			charged = append(charged, c)
		}
	}
	return nil
}

// current reads the quotas of a namespace without the cache.
func (p *Admission) current(ctx context.Context, namespace string) ([]*corev1.ResourceQuota, error) {
	list, err := p.client.CoreV1().ResourceQuotas(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("list resourcequotas: %w", err))
	}
	all := make([]*corev1.ResourceQuota, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}

// charge is the usage that a request was charged in one quota.
type charge struct {
	quota *corev1.ResourceQuota
	used  corev1.ResourceList
}

// checkQuota returns the quota after the request, and reports whether it has changed.
func checkQuota(q *corev1.ResourceQuota, a admission.Attributes, e quota.Evaluator) (after *corev1.ResourceQuota, changed bool, err error) {
	out, err := resourcequota.CheckRequest([]corev1.ResourceQuota{*q.DeepCopy()}, a, e, nil)
	if err != nil {
		return nil, false, err
	}
	return &out[0], !quota.Equals(out[0].Status.Used, q.Status.Used), nil
}

// charge adds the request's usage to the quota in etcd. The cached quota only determines whether the quota applies to the
// request, because it may lack space freed by a deletion.
func (p *Admission) charge(ctx context.Context, cached *corev1.ResourceQuota, a admission.Attributes, e quota.Evaluator) (charge, error) {
	// A status without all limits is still being counted, and may already exist in etcd.
	if _, changed, err := checkQuota(cached, a, e); err == nil && !changed && quota.Equals(cached.Spec.Hard, cached.Status.Hard) {
		return charge{}, nil
	}
	// Lock within this process, because a conflict would only be retried.
	unlock, err := p.locks.lock(ctx, cached.Namespace+"/"+cached.Name)
	if err != nil {
		return charge{}, apierrors.NewTimeoutError("the request waited for its turn to be counted by a resource quota", 1)
	}
	defer unlock()
	all := p.client.CoreV1().ResourceQuotas(cached.Namespace)
	for {
		q, err := all.Get(ctx, cached.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return charge{}, nil
		}
		if err != nil {
			return charge{}, storageError("read", cached, err)
		}
		after, changed, err := checkQuota(q, a, e)
		if err != nil || !changed || a.IsDryRun() {
			return charge{}, err
		}
		_, err = all.UpdateStatus(ctx, after, metav1.UpdateOptions{})
		switch {
		case err == nil:
			return charge{q, quota.Subtract(after.Status.Used, q.Status.Used)}, nil
		case apierrors.IsNotFound(err):
			return charge{}, nil
		case !apierrors.IsConflict(err):
			return charge{}, storageError("charge", cached, err)
		}
	}
}

func storageError(verb string, q *corev1.ResourceQuota, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return apierrors.NewTimeoutError(fmt.Sprintf("%s resource quota %s: %v", verb, q.Name, err), 1)
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code > http.StatusInternalServerError {
		return err // storage is unavailable, which is not an internal error
	}
	return apierrors.NewInternalError(fmt.Errorf("%s resource quota %s: %w", verb, q.Name, err))
}

const refundTimeout = 5 * time.Second

// refund reverts charges. The next measurement of the namespace corrects charges that cannot be reverted.
func (p *Admission) refund(ctx context.Context, charges []charge) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTimeout)
	defer cancel()
	for _, c := range charges {
		all := p.client.CoreV1().ResourceQuotas(c.quota.Namespace)
		for {
			q, err := all.Get(ctx, c.quota.Name, metav1.GetOptions{})
			if err != nil || q.UID != c.quota.UID {
				break
			}
			q.Status.Used = quota.Mask(quota.SubtractWithNonNegativeResult(q.Status.Used, c.used), quota.ResourceNames(q.Status.Used))
			if _, err = all.UpdateStatus(ctx, q, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				break
			}
		}
	}
}

// keyedMutex is a mutex for each key. It contains only keys that are locked or waited for.
type keyedMutex struct {
	mu   sync.Mutex // guards keys
	keys map[string]*keyMutex
}

type keyMutex struct {
	free  chan struct{} // holds one token while the key is unlocked
	users int           // holders and waiters
}

func newKeyedMutex() *keyedMutex { return &keyedMutex{keys: map[string]*keyMutex{}} }

// lock waits for the mutex of a key until ctx ends.
func (t *keyedMutex) lock(ctx context.Context, key string) (unlock func(), err error) {
	t.mu.Lock()
	k := t.keys[key]
	if k == nil {
		k = &keyMutex{free: make(chan struct{}, 1)}
		k.free <- struct{}{}
		t.keys[key] = k
	}
	k.users++
	t.mu.Unlock()
	done := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(t.keys, key)
		}
	}
	select {
	case <-k.free:
		return func() {
			k.free <- struct{}{}
			done()
		}, nil
	case <-ctx.Done():
		done()
		return nil, ctx.Err()
	}
}
