package reconcile

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/clients"
)

// NewInformer returns an informer for the objects that api lists. api is the typed client of one kind, object an empty object
// of that kind, and client the clientset that contains api. If name is set, the informer is restricted to objects of that name.
// The informer has no index, and its objects have no managed fields, to save memory: there may be an object in each of
// thousands of namespaces. A write without managed fields leaves the stored ones unchanged.
func NewInformer[L runtime.Object](client clients.Interface, api interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}, object runtime.Object, name string) cache.SharedIndexInformer {
	selector := ""
	if name != "" {
		selector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	listWatch := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return api.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return api.Watch(ctx, o)
		},
	}
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(listWatch, client), object, 0, cache.Indexers{})
	_ = informer.SetTransform(WithoutManagedFields) // fails only if the informer is running
	return informer
}

// WithoutManagedFields is a transform for informers that removes managed fields.
func WithoutManagedFields(obj any) (any, error) {
	if accessor, err := meta.Accessor(obj); err == nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}

// Active reports whether a namespace exists and is not being deleted.
func Active(namespaces coreinformers.NamespaceInformer, name string) bool {
	ns, err := namespaces.Lister().Get(name)
	return err == nil && ns.DeletionTimestamp == nil && ns.Status.Phase != corev1.NamespaceTerminating
}

// IsNamespaceGone reports whether a create was refused because the namespace is being deleted or does not exist. This is not a
// failure: the informer was only a moment behind.
func IsNamespaceGone(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err)
}

// IsOutdated reports whether a write was refused because the object has changed or was deleted. Its informer will report the
// change.
func IsOutdated(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// Ignoring returns nil if is(err) is true, and err otherwise.
func Ignoring(err error, is func(error) bool) error {
	if is(err) {
		return nil
	}
	return err
}

// NameOf is a Source.Key that returns the object's name.
func NameOf(obj any) string {
	if o, err := meta.Accessor(obj); err == nil {
		return o.GetName()
	}
	return ""
}

// NamespaceOf is a Source.Key that returns the object's namespace.
func NamespaceOf(obj any) string {
	if o, err := meta.Accessor(obj); err == nil {
		return o.GetNamespace()
	}
	return ""
}
