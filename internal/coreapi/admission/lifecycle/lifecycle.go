// Package lifecycle is the admission plugin NamespaceLifecycle.
package lifecycle

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
)

// Plugin refuses new content in a namespace that is missing or on its way out, and the deletion of those that the system
// cannot do without: the rules and the messages of upstream.
//
// It reads each namespace from etcd where upstream asks an informer: an object created in a namespace that the informer
// has not yet seen end is an orphan that comes back to life with the next namespace of that name.
type Plugin struct {
	namespace func(ctx context.Context, name string) (*corev1.Namespace, error)
}

var _ admission.MutationInterface = (*Plugin)(nil)

// New takes what reads a namespace as it is now.
func New(namespace func(ctx context.Context, name string) (*corev1.Namespace, error)) *Plugin {
	return &Plugin{namespace}
}

func immortal(namespace string) bool {
	return namespace == metav1.NamespaceDefault || namespace == metav1.NamespaceSystem || namespace == metav1.NamespacePublic
}

func (p *Plugin) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Delete
}

// Admit runs with the mutating plugins although it changes nothing, so that no webhook is asked in vain.
func (p *Plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
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
	namespace, err := p.namespace(ctx, a.GetNamespace())
	if err != nil {
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			return err // what storage has said of itself, such as that it cannot answer now, is no error of this server
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
