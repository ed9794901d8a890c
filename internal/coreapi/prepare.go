package coreapi

import (
	"context"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// What single kinds do to an object before it is validated and stored, beyond the rules that the table spells out.

// prepareNamespace makes a namespace active and unremovable until its content is gone: the namespace controller takes
// the finalizer away. The label lets selectors name a namespace.
func prepareNamespace(obj runtime.Object) {
	ns := obj.(*corev1.Namespace)
	ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
	// Defaulting has labelled it already, unless the name was generated after that.
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

// keepNamespaceFinalizers leaves spec.finalizers to the finalize subresource.
func keepNamespaceFinalizers(obj, old runtime.Object) {
	ns := obj.(*corev1.Namespace)
	ns.Spec.Finalizers = old.(*corev1.Namespace).Spec.Finalizers
}

// stampLocal makes a Local APIService available at once: there is no backend to ask.
func stampLocal(obj runtime.Object) {
	service := obj.(*apiregistrationv1.APIService)
	if service.Spec.Service != nil {
		return
	}
	service.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
		Type:               apiregistrationv1.Available,
		Status:             apiregistrationv1.ConditionTrue,
		Reason:             "Local",
		Message:            "Local APIServices are always available",
		LastTransitionTime: metav1.Now(),
	}}
}

// sameEndpoints counts every change of a slice but those of its bookkeeping; labels say which Service it is for.
func sameEndpoints(a, b runtime.Object) bool {
	x, y := *a.(*discoveryv1.EndpointSlice), *b.(*discoveryv1.EndpointSlice)
	x.ObjectMeta = metav1.ObjectMeta{Labels: x.Labels}
	y.ObjectMeta = metav1.ObjectMeta{Labels: y.Labels}
	return apiequality.Semantic.DeepEqual(&x, &y)
}

// podStrategy adds the grace that a pod's processes get to end.
type podStrategy struct {
	strategy
}

func withGrace(s strategy) rest.RESTDeleteStrategy { return podStrategy{s} }

// CheckGracefulDelete decides how long the pod object outlives the request. Only a kubelet ends the wait early, so a
// pod that no node runs goes at once.
func (podStrategy) CheckGracefulDelete(_ context.Context, obj runtime.Object, options *metav1.DeleteOptions) bool {
	if options == nil {
		return false
	}
	pod := obj.(*corev1.Pod)
	var seconds int64
	switch {
	case pod.Spec.NodeName == "", pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
	case options.GracePeriodSeconds != nil:
		seconds = *options.GracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	if seconds < 0 {
		seconds = 1 // what kubelets make of it
	}
	options.GracePeriodSeconds = &seconds
	return true
}

// onlyNamesOfSecrets drops what a service account says of its secrets beyond their names: they are in its namespace, and
// nobody is to believe otherwise.
func onlyNamesOfSecrets(obj runtime.Object) {
	secrets := obj.(*corev1.ServiceAccount).Secrets
	for i := range secrets {
		secrets[i] = corev1.ObjectReference{Name: secrets[i].Name}
	}
}

// uncoordinated drops what leases say of coordinated leader election (KEP-4355), which is off: nobody elects here.
func uncoordinated(obj, old runtime.Object) {
	spec := &obj.(*coordinationv1.Lease).Spec
	before, ok := old.(*coordinationv1.Lease)
	if !ok || before.Spec.Strategy == nil {
		spec.Strategy = nil
	}
	if !ok || before.Spec.PreferredHolder == nil {
		spec.PreferredHolder = nil
	}
}
