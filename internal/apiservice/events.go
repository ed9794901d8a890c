package apiservice

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// event is what the loop has to look at again: one APIService, or all that refer to one Service.
type event struct {
	apiService string
	service    types.NamespacedName
}

// listen subscribes to the informers and waits until they have said what exists. stop ends the subscriptions.
func (c *Controller) listen(ctx context.Context) (stop func(), synced bool, err error) {
	var subscriptions []func()
	stop = func() {
		for _, s := range subscriptions {
			s()
		}
	}
	var checkers []cache.DoneChecker
	subscribe := func(informer cache.SharedIndexInformer, h cache.ResourceEventHandler) {
		if err != nil {
			return
		}
		registration, e := informer.AddEventHandler(h)
		if e != nil {
			err = fmt.Errorf("listen for events: %w", e)
			return
		}
		subscriptions = append(subscriptions, func() { _ = informer.RemoveEventHandler(registration) })
		checkers = append(checkers, registration.HasSyncedChecker())
	}
	subscribe(c.cfg.APIServices.Informer(), handler[*apiregistrationv1.APIService]{c.apiServiceEvent})
	subscribe(c.cfg.Services.Informer(), handler[*corev1.Service]{c.serviceEvent})
	subscribe(c.cfg.EndpointSlices.Informer(), handler[*discoveryv1.EndpointSlice]{c.endpointSliceEvent})
	if c.cfg.CRDs != nil {
		subscribe(c.cfg.CRDs.Informer(), handler[*apiextensionsv1.CustomResourceDefinition]{c.crdEvent})
	}
	if err != nil {
		return stop, false, err
	}
	return stop, cache.WaitFor(ctx, "", checkers...), nil
}

// handler turns the three kinds of event of an informer into one call; before or after is nil for an object that was
// not, or no longer is, there.
type handler[T any] struct {
	handle func(before, after T)
}

func (h handler[T]) OnAdd(o any, _ bool) {
	var none T
	if after, ok := o.(T); ok {
		h.handle(none, after)
	}
}

func (h handler[T]) OnUpdate(o, n any) {
	before, okBefore := o.(T)
	after, okAfter := n.(T)
	if okBefore && okAfter {
		h.handle(before, after)
	}
}

func (h handler[T]) OnDelete(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	var none T
	if before, ok := o.(T); ok {
		h.handle(before, none)
	}
}

func (c *Controller) apiServiceEvent(before, after *apiregistrationv1.APIService) {
	switch {
	case before != nil && after != nil && sameOrder(before, after):
		if !equality.Semantic.DeepEqual(before.Status, after.Status) {
			// Our own write, which the scribe finds in order, or somebody else's, which it puts right in a while.
			c.scribe.queue.AddAfter(after.Name, foreignDelay)
		}
		return
	case after != nil:
		if before != nil && before.Spec.Service != nil && after.Spec.Service == nil {
			c.registrar.replacementEnded(after.Name)
		}
		c.queue.Add(event{apiService: after.Name})
		c.registrar.queue.Add(after.Name)
	case before != nil:
		c.queue.Add(event{apiService: before.Name})
		c.registrar.queue.Add(before.Name)
	}
}

// sameOrder reports whether two versions of an APIService ask for the same thing.
func sameOrder(a, b *apiregistrationv1.APIService) bool {
	return a.UID == b.UID && equality.Semantic.DeepEqual(a.Spec, b.Spec) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}

func (c *Controller) serviceEvent(before, after *corev1.Service) {
	if before != nil && after != nil && equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return
	}
	for _, s := range []*corev1.Service{before, after} {
		if s != nil {
			c.queue.Add(event{service: types.NamespacedName{Namespace: s.Namespace, Name: s.Name}})
		}
	}
}

func (c *Controller) endpointSliceEvent(before, after *discoveryv1.EndpointSlice) {
	if before != nil && after != nil && before.ResourceVersion == after.ResourceVersion {
		return // a resync
	}
	for _, s := range []*discoveryv1.EndpointSlice{before, after} {
		if s == nil || s.Labels[discoveryv1.LabelServiceName] == "" {
			continue
		}
		c.queue.Add(event{service: types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}})
	}
}

func (c *Controller) crdEvent(before, after *apiextensionsv1.CustomResourceDefinition) {
	for _, crd := range []*apiextensionsv1.CustomResourceDefinition{before, after} {
		if crd == nil {
			continue
		}
		for _, v := range crd.Spec.Versions {
			name := apiServiceName(schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name})
			c.registrar.queue.Add(name)
			c.queue.Add(event{apiService: name})
		}
	}
}
