package reconcile

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
)

var byNamespace = cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}

// named restricts an informer to the objects of one name, in whatever namespace.
func named(name string) func(*metav1.ListOptions) {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	return func(o *metav1.ListOptions) { o.FieldSelector = selector }
}

// active says whether a namespace exists and is there to stay.
func active(namespaces coreinformers.NamespaceInformer, name string) bool {
	ns, err := namespaces.Lister().Get(name)
	return err == nil && ns.DeletionTimestamp == nil && ns.Status.Phase != corev1.NamespaceTerminating
}

// leaving says whether a create was refused because the namespace is being deleted or has just gone: no error, only
// an informer that was a moment behind.
func leaving(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err)
}

func nameOf(obj any) string {
	if o, err := meta.Accessor(obj); err == nil {
		return o.GetName()
	}
	return ""
}

func namespaceOf(obj any) string {
	if o, err := meta.Accessor(obj); err == nil {
		return o.GetNamespace()
	}
	return ""
}
