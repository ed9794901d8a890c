package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

// namespaceLifecycle refuses new objects in a namespace that is missing or terminating, and the deletion of system namespaces,
// with upstream's rules and messages.
//
// It reads the namespace from etcd; upstream uses an informer. The check only refuses early: storage creates no object in a
// namespace that has begun to terminate since (namespacetxn.go of coreapi).
type namespaceLifecycle struct {
	namespace func(ctx context.Context, name string) (*corev1.Namespace, error)
}

var _ admission.MutationInterface = (*namespaceLifecycle)(nil)

// newNamespaceLifecycle returns the plugin. namespace reads the namespace of a create request.
func newNamespaceLifecycle(namespace func(ctx context.Context, name string) (*corev1.Namespace, error)) *namespaceLifecycle {
	return &namespaceLifecycle{namespace}
}

func isSystemNamespace(namespace string) bool {
	return namespace == metav1.NamespaceDefault || namespace == metav1.NamespaceSystem || namespace == metav1.NamespacePublic
}

func (p *namespaceLifecycle) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Delete
}

// Admit runs with the mutating plugins although it changes nothing, so that no webhook is called for a request that is refused.
func (p *namespaceLifecycle) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetKind().GroupKind() == corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind() {
		if a.GetOperation() == admission.Delete && isSystemNamespace(a.GetName()) {
			return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), errors.New("this namespace may not be deleted"))
		}
		return nil
	}
	// An access review in a namespace must not reveal whether the namespace exists.
	if a.GetOperation() != admission.Create || a.GetNamespace() == "" || isAccessReview(a) {
		return nil
	}
	namespace, err := p.namespace(ctx, a.GetNamespace())
	if err != nil {
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			return err // storage may be unavailable, which is not an internal error
		}
		return apierrors.NewInternalError(err)
	}
	if namespace.Status.Phase != corev1.NamespaceTerminating {
		return nil
	}
	name := a.GetName()
	if m, err := meta.Accessor(a.GetObject()); err == nil {
		name = cmp.Or(name, m.GetName(), m.GetGenerateName())
	}
	return NamespaceTerminating(a.GetResource().GroupResource(), cmp.Or(name, "Unknown"), a.GetNamespace())
}

func isAccessReview(a admission.Attributes) bool {
	resource := a.GetResource().GroupResource()
	return resource.Group == "authorization.k8s.io" && resource.Resource == "localsubjectaccessreviews"
}

// NamespaceTerminating returns the error for a create in a namespace that is being deleted. Controllers do not retry after its
// cause.
func NamespaceTerminating(resource schema.GroupResource, name, namespace string) error {
	err := apierrors.NewForbidden(resource, name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    corev1.NamespaceTerminatingCause,
		Message: fmt.Sprintf("namespace %s is being terminated", namespace),
		Field:   "metadata.namespace",
	})
	return err
}
