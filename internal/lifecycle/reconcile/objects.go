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

// ByNamespace indexes the objects of an informer by namespace.
var ByNamespace = cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}

// Named restricts an informer to the objects of one name, in any namespace.
func Named(name string) func(*metav1.ListOptions) {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	return func(o *metav1.ListOptions) { o.FieldSelector = selector }
}

// Active reports whether a namespace exists and is not being deleted.
func Active(namespaces coreinformers.NamespaceInformer, name string) bool {
	ns, err := namespaces.Lister().Get(name)
	return err == nil && ns.DeletionTimestamp == nil && ns.Status.Phase != corev1.NamespaceTerminating
}

// IsNamespaceGone reports whether a create was refused because the namespace is being deleted or does not exist: no
// failure, the informer was only a moment behind.
func IsNamespaceGone(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err)
}

// IsOutdated reports whether a write was refused because the object has changed or is gone. Its informer tells the rest.
func IsOutdated(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// Ignoring returns err, or nil if it is what is says.
func Ignoring(err error, is func(error) bool) error {
	if is(err) {
		return nil
	}
	return err
}

// NameOf is a Source.Key: the object's name.
func NameOf(obj any) string {
	if o, err := meta.Accessor(obj); err == nil {
		return o.GetName()
	}
	return ""
}

// NamespaceOf is a Source.Key: the object's namespace.
func NamespaceOf(obj any) string {
	if o, err := meta.Accessor(obj); err == nil {
		return o.GetNamespace()
	}
	return ""
}
