package admission

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	admissionregistrationv1 "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"
)

// policyReadTimeout limits the wait for k8s.io/apiserver's policies, like the ten seconds of its WaitForReady.
const policyReadTimeout = 10 * time.Second

// policyInformers are informers for k8s.io/apiserver's policies. k8s.io/apiserver polls ten times a second whether the
// informers have synced, and callers poll the policies as often, which takes most of the startup time. Here HasSynced waits for
// the first list, and await waits until the policies have read it.
type policyInformers struct {
	informers.SharedInformerFactory
	stop <-chan struct{}

	mu  sync.Mutex // guards all
	all []*policyInformer
}

// await waits until all requested informers have been read, but at most policyReadTimeout.
func (r *policyInformers) await(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, policyReadTimeout)
	defer cancel()
	r.mu.Lock()
	all := r.all
	r.mu.Unlock()
	for _, w := range all {
		select {
		case <-w.read:
		case <-bounded.Done():
			return
		}
	}
}

func (r *policyInformers) watch(informer cache.SharedIndexInformer) cache.SharedIndexInformer {
	w := &policyInformer{SharedIndexInformer: informer, stop: r.stop, read: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, w)
	return w
}

// policyInformer is an informer that a policy source waits for, reads and then watches, in this order.
type policyInformer struct {
	cache.SharedIndexInformer
	stop <-chan struct{}
	once sync.Once
	read chan struct{} // closed when the source adds its event handler
}

// HasSynced waits for the first list.
func (w *policyInformer) HasSynced() bool {
	select {
	case <-w.HasSyncedChecker().Done():
	case <-w.stop:
	}
	return w.SharedIndexInformer.HasSynced()
}

func (w *policyInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	registration, err := w.SharedIndexInformer.AddEventHandler(h)
	w.once.Do(func() { close(w.read) })
	return registration, err
}

type (
	policyGroup struct {
		admissionregistration.Interface
		of *policyInformers
	}
	policyVersion struct {
		admissionregistrationv1.Interface
		of *policyInformers
	}
	mutatingPolicies struct {
		admissionregistrationv1.TypedMutatingAdmissionPolicyInformer
		of *policyInformers
	}
	mutatingBindings struct {
		admissionregistrationv1.TypedMutatingAdmissionPolicyBindingInformer
		of *policyInformers
	}
	validatingPolicies struct {
		admissionregistrationv1.TypedValidatingAdmissionPolicyInformer
		of *policyInformers
	}
	validatingBindings struct {
		admissionregistrationv1.TypedValidatingAdmissionPolicyBindingInformer
		of *policyInformers
	}
)

func (r *policyInformers) Admissionregistration() admissionregistration.Interface {
	return policyGroup{r.SharedInformerFactory.Admissionregistration(), r}
}

func (g policyGroup) V1() admissionregistrationv1.Interface {
	return policyVersion{g.Interface.V1(), g.of}
}

func (v policyVersion) MutatingAdmissionPolicies() admissionregistrationv1.TypedMutatingAdmissionPolicyInformer {
	return mutatingPolicies{v.Interface.MutatingAdmissionPolicies(), v.of}
}

func (v policyVersion) MutatingAdmissionPolicyBindings() admissionregistrationv1.TypedMutatingAdmissionPolicyBindingInformer {
	return mutatingBindings{v.Interface.MutatingAdmissionPolicyBindings(), v.of}
}

func (v policyVersion) ValidatingAdmissionPolicies() admissionregistrationv1.TypedValidatingAdmissionPolicyInformer {
	return validatingPolicies{v.Interface.ValidatingAdmissionPolicies(), v.of}
}

func (v policyVersion) ValidatingAdmissionPolicyBindings() admissionregistrationv1.TypedValidatingAdmissionPolicyBindingInformer {
	return validatingBindings{v.Interface.ValidatingAdmissionPolicyBindings(), v.of}
}

func (m mutatingPolicies) Informer() cache.SharedIndexInformer {
	return m.of.watch(m.TypedMutatingAdmissionPolicyInformer.Informer())
}

func (m mutatingBindings) Informer() cache.SharedIndexInformer {
	return m.of.watch(m.TypedMutatingAdmissionPolicyBindingInformer.Informer())
}

func (m validatingPolicies) Informer() cache.SharedIndexInformer {
	return m.of.watch(m.TypedValidatingAdmissionPolicyInformer.Informer())
}

func (m validatingBindings) Informer() cache.SharedIndexInformer {
	return m.of.watch(m.TypedValidatingAdmissionPolicyBindingInformer.Informer())
}
