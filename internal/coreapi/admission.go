package coreapi

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// admissionChain is what every create, update and delete passes after authorization, in this order.
func admissionChain(namespaceOf namespaceGetter) admission.Interface {
	return admission.NewChainHandler(&namespaceLifecycle{namespaceOf})
}

// namespaceGetter reads a namespace as it is now.
type namespaceGetter func(ctx context.Context, name string) (*corev1.Namespace, error)

// namespaceLifecycle refuses new content in a namespace that is missing or on its way out, and the deletion of those
// that the system cannot do without: the rules and the messages of the upstream plugin of that name.
//
// It reads each namespace from etcd where the plugin asks an informer: an object created in a namespace that the
// informer has not yet seen end is an orphan that comes back to life with the next namespace of that name.
type namespaceLifecycle struct {
	get namespaceGetter
}

var _ admission.MutationInterface = (*namespaceLifecycle)(nil)

func immortal(namespace string) bool {
	return namespace == metav1.NamespaceDefault || namespace == metav1.NamespaceSystem || namespace == metav1.NamespacePublic
}

func (l *namespaceLifecycle) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Delete
}

// Admit runs with the mutating plugins although it changes nothing, so that no webhook is asked in vain.
func (l *namespaceLifecycle) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetKind().GroupKind() == corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind() {
		if a.GetOperation() == admission.Delete && immortal(a.GetName()) {
			return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), errors.New("this namespace may not be deleted"))
		}
		return nil
	}
	// An access review in a namespace must not tell whether the namespace exists.
	if a.GetOperation() != admission.Create || a.GetNamespace() == "" || isAccessReview(a) {
		return nil
	}
	namespace, err := l.get(ctx, a.GetNamespace())
	if err != nil {
		if apierrors.IsNotFound(err) {
			return err
		}
		return apierrors.NewInternalError(err)
	}
	if namespace.Status.Phase != corev1.NamespaceTerminating {
		return nil
	}
	return terminating(a)
}

func isAccessReview(a admission.Attributes) bool {
	resource := a.GetResource().GroupResource()
	return resource.Group == "authorization.k8s.io" && resource.Resource == "localsubjectaccessreviews"
}

// terminating carries the cause by which controllers know that it is no use to try again.
func terminating(a admission.Attributes) error {
	err := admission.NewForbidden(a, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", a.GetNamespace()))
	var status *apierrors.StatusError
	if errors.As(err, &status) && status.ErrStatus.Details != nil {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{
			Type:    corev1.NamespaceTerminatingCause,
			Message: fmt.Sprintf("namespace %s is being terminated", a.GetNamespace()),
			Field:   "metadata.namespace",
		})
	}
	return err
}

// currentNamespace reads through the storage of namespaces, in a context of its own: the one of the request names a
// resource and a namespace that are not those of this read.
func currentNamespace(namespaces *stored) namespaceGetter {
	return func(ctx context.Context, name string) (*corev1.Namespace, error) {
		obj, err := namespaces.Get(readContext(ctx, "", "namespaces", "", name), name, &metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return obj.(*corev1.Namespace), nil
	}
}

// readContext turns the context of one request into that of a read which storage makes on its behalf, so that keys and
// error messages are about the object read.
func readContext(ctx context.Context, group, resource, namespace, name string) context.Context {
	ctx = apirequest.WithNamespace(ctx, namespace)
	return apirequest.WithRequestInfo(ctx, &apirequest.RequestInfo{
		IsResourceRequest: true, Verb: "get", APIPrefix: "apis", APIGroup: group, APIVersion: "v1",
		Resource: resource, Namespace: namespace, Name: name,
	})
}
