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

// readTimeout bounds the wait for the library's policies; it gives them ten seconds itself.
const readTimeout = 10 * time.Second

// readings are informers for the library's policies. Those look ten times a second whether their informers have synced, and
// are looked at ten times a second in turn, which is most of a start. Here the first look lasts until there is something to
// see, and we are told when they have looked.
type readings struct {
	informers.SharedInformerFactory
	stop <-chan struct{}

	mu  sync.Mutex // guards what follows
	all []*watched
}

// await returns when all that were asked for have been read, or might as well be asked.
func (r *readings) await(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, readTimeout)
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

func (r *readings) watch(informer cache.SharedIndexInformer) cache.SharedIndexInformer {
	w := &watched{SharedIndexInformer: informer, stop: r.stop, read: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, w)
	return w
}

// watched is an informer that a policy source waits for, reads, and then follows, in this order.
type watched struct {
	cache.SharedIndexInformer
	stop <-chan struct{}
	once sync.Once
	read chan struct{} // closed when it is followed
}

// HasSynced waits for the first list.
func (w *watched) HasSynced() bool {
	select {
	case <-w.HasSyncedChecker().Done():
	case <-w.stop:
	}
	return w.SharedIndexInformer.HasSynced()
}

func (w *watched) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	registration, err := w.SharedIndexInformer.AddEventHandler(h)
	w.once.Do(func() { close(w.read) })
	return registration, err
}

type (
	readGroup struct {
		admissionregistration.Interface
		of *readings
	}
	readVersion struct {
		admissionregistrationv1.Interface
		of *readings
	}
	readMutating struct {
		admissionregistrationv1.TypedMutatingAdmissionPolicyInformer
		of *readings
	}
	readMutatingBindings struct {
		admissionregistrationv1.TypedMutatingAdmissionPolicyBindingInformer
		of *readings
	}
	readValidating struct {
		admissionregistrationv1.TypedValidatingAdmissionPolicyInformer
		of *readings
	}
	readValidatingBindings struct {
		admissionregistrationv1.TypedValidatingAdmissionPolicyBindingInformer
		of *readings
	}
)

func (r *readings) Admissionregistration() admissionregistration.Interface {
	return readGroup{r.SharedInformerFactory.Admissionregistration(), r}
}

func (g readGroup) V1() admissionregistrationv1.Interface { return readVersion{g.Interface.V1(), g.of} }

func (v readVersion) MutatingAdmissionPolicies() admissionregistrationv1.TypedMutatingAdmissionPolicyInformer {
	return readMutating{v.Interface.MutatingAdmissionPolicies(), v.of}
}

func (v readVersion) MutatingAdmissionPolicyBindings() admissionregistrationv1.TypedMutatingAdmissionPolicyBindingInformer {
	return readMutatingBindings{v.Interface.MutatingAdmissionPolicyBindings(), v.of}
}

func (v readVersion) ValidatingAdmissionPolicies() admissionregistrationv1.TypedValidatingAdmissionPolicyInformer {
	return readValidating{v.Interface.ValidatingAdmissionPolicies(), v.of}
}

func (v readVersion) ValidatingAdmissionPolicyBindings() admissionregistrationv1.TypedValidatingAdmissionPolicyBindingInformer {
	return readValidatingBindings{v.Interface.ValidatingAdmissionPolicyBindings(), v.of}
}

func (m readMutating) Informer() cache.SharedIndexInformer {
	return m.of.watch(m.TypedMutatingAdmissionPolicyInformer.Informer())
}

func (m readMutatingBindings) Informer() cache.SharedIndexInformer {
	return m.of.watch(m.TypedMutatingAdmissionPolicyBindingInformer.Informer())
}

func (m readValidating) Informer() cache.SharedIndexInformer {
	return m.of.watch(m.TypedValidatingAdmissionPolicyInformer.Informer())
}

func (m readValidatingBindings) Informer() cache.SharedIndexInformer {
	return m.of.watch(m.TypedValidatingAdmissionPolicyBindingInformer.Informer())
}
