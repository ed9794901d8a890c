package core

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storageerrors "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"portico.dev/internal/coreapi/registry"
)

// namespaces is the storage of namespaces, which are deleted in two steps. DELETE marks a namespace and keeps it. The namespace
// controller deletes its contents and removes "kubernetes" from spec.finalizers through the finalize subresource. The write
// that leaves neither kind of finalizer removes the object. As in kube-apiserver, namespaces do not support deletecollection: a
// typo could delete the contents of the cluster.
type namespaces struct {
	all *registry.REST
}

func namespaceStorages(_ *registry.Environment, all *registry.REST) map[string]rest.Storage {
	all.ShouldDeleteDuringUpdate = namespaceIsFinished
	return map[string]rest.Storage{
		"namespaces":          &namespaces{all},
		"namespaces/finalize": &finalizeREST{all.Subresource(finalizeStrategy{all.Strategy})},
	}
}

var (
	_ rest.Getter              = (*namespaces)(nil)
	_ rest.Lister              = (*namespaces)(nil)
	_ rest.Watcher             = (*namespaces)(nil)
	_ rest.CreaterUpdater      = (*namespaces)(nil)
	_ rest.GracefulDeleter     = (*namespaces)(nil)
	_ rest.ResetFieldsStrategy = (*namespaces)(nil)
	// DELETE returns the namespace while it still exists.
	_ rest.MayReturnFullObjectDeleter = (*namespaces)(nil)
	_ rest.StorageVersionProvider     = (*namespaces)(nil)
)

func (n *namespaces) New() runtime.Object { return n.all.New() }

func (n *namespaces) NewList() runtime.Object { return n.all.NewList() }

func (n *namespaces) Destroy() { n.all.Destroy() }

func (n *namespaces) NamespaceScoped() bool { return false }

func (n *namespaces) GetSingularName() string { return n.all.GetSingularName() }

func (n *namespaces) ShortNames() []string { return n.all.ShortNames() }

func (n *namespaces) DeleteReturnsDeletedObject() bool { return true }

func (n *namespaces) StorageVersion() runtime.GroupVersioner { return n.all.StorageVersion() }

func (n *namespaces) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return n.all.GetResetFields()
}

func (n *namespaces) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return n.all.Get(ctx, name, options)
}

func (n *namespaces) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	return n.all.List(ctx, options)
}

func (n *namespaces) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	return n.all.Watch(ctx, options)
}

func (n *namespaces) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	return n.all.Create(ctx, obj, validate, options)
}

func (n *namespaces) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, forceCreate bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return n.all.Update(ctx, name, info, create, update, forceCreate, options)
}

func (n *namespaces) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return n.all.ConvertToTable(ctx, obj, options)
}

// Delete sets the deletion timestamp of a namespace. A namespace that already has one is returned unchanged, or removed if
// spec.finalizers is empty.
func (n *namespaces) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	obj, err := n.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, false, err
	}
	ns := obj.(*corev1.Namespace)
	if options == nil {
		options = metav1.NewDeleteOptions(0)
	}
	if err := pinUID(ns, options); err != nil {
		return nil, false, err
	}
	if ns.DeletionTimestamp.IsZero() {
		ns, err = n.mark(ctx, name, validate, options)
		return ns, false, err
	}
	if len(ns.Spec.Finalizers) > 0 {
		return ns, false, nil
	}
	return n.all.Delete(ctx, name, validate, options)
}

// pinUID restricts the request to this namespace, so that it does not delete a new one with the same name.
func pinUID(ns *corev1.Namespace, options *metav1.DeleteOptions) error {
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	wanted := options.Preconditions
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(corev1.Resource("namespaces"), ns.Name, fmt.Errorf(format, args...))
	}
	if wanted.UID != nil && *wanted.UID != ns.UID {
		return conflict("Precondition failed: UID in precondition: %v, UID in object meta: %v", *wanted.UID, ns.UID)
	}
	if wanted.ResourceVersion != nil && *wanted.ResourceVersion != ns.ResourceVersion {
		return conflict("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v",
			*wanted.ResourceVersion, ns.ResourceVersion)
	}
	wanted.UID = &ns.UID
	return nil
}

// mark sets the deletion timestamp, the phase and the finalizers for the propagation policy in one write.
func (n *namespaces) mark(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (*corev1.Namespace, error) {
	key, err := n.all.KeyFunc(ctx, name)
	if err != nil {
		return nil, err
	}
	marked := &corev1.Namespace{}
	preconditions := &storage.Preconditions{UID: options.Preconditions.UID, ResourceVersion: options.Preconditions.ResourceVersion}
	update := storage.SimpleUpdate(func(existing runtime.Object) (runtime.Object, error) {
		ns, ok := existing.(*corev1.Namespace)
		if !ok {
			return nil, fmt.Errorf("expected a Namespace, got %T", existing)
		}
		if validate != nil {
			if err := validate(ctx, ns); err != nil {
				return nil, err
			}
		}
		if ns.DeletionTimestamp.IsZero() {
			now := metav1.Now()
			ns.DeletionTimestamp = &now
		}
		ns.Status.Phase = corev1.NamespaceTerminating
		ns.Finalizers = propagationFinalizers(ns.Finalizers, options)
		return ns, nil
	})
	err = n.all.Storage.GuaranteedUpdate(ctx, key, marked, false, preconditions, update, dryrun.IsDryRun(options.DryRun), nil)
	if err != nil {
		err = storageerrors.InterpretGetError(err, corev1.Resource("namespaces"), name)
		err = storageerrors.InterpretUpdateError(err, corev1.Resource("namespaces"), name)
		return nil, err
	}
	return marked, nil
}

// propagationFinalizers adds or removes the finalizers by which the garbage collector treats dependents. Without a policy in
// the request the finalizers do not change.
func propagationFinalizers(finalizers []string, options *metav1.DeleteOptions) []string {
	var orphan, foreground bool
	switch {
	case options.PropagationPolicy != nil:
		orphan = *options.PropagationPolicy == metav1.DeletePropagationOrphan
		foreground = *options.PropagationPolicy == metav1.DeletePropagationForeground
	//lint:ignore SA1019 deprecated, and still sent by old clients
	case options.OrphanDependents != nil:
		//lint:ignore SA1019 as above
		orphan = *options.OrphanDependents
		foreground = slices.Contains(finalizers, metav1.FinalizerDeleteDependents)
	default:
		return finalizers
	}
	kept := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	if orphan {
		kept = append(kept, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		kept = append(kept, metav1.FinalizerDeleteDependents)
	}
	return kept
}

func namespaceIsFinished(ctx context.Context, key string, obj, existing runtime.Object) bool {
	return len(obj.(*corev1.Namespace).Spec.Finalizers) == 0 && genericregistry.ShouldDeleteDuringUpdate(ctx, key, obj, existing)
}

// finalizeStrategy replaces spec.finalizers and keeps the status.
type finalizeStrategy struct {
	registry.Strategy
}

func (s finalizeStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	s.Resource.Status.Copy(obj, old)
}

func (s finalizeStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validateFinalize(obj.(*corev1.Namespace), old.(*corev1.Namespace))
}

// finalizeREST serves namespaces/finalize, which supports only update.
type finalizeREST struct {
	finalize *registry.Subresource
}

var _ rest.Updater = (*finalizeREST)(nil)

func (f *finalizeREST) New() runtime.Object { return f.finalize.New() }

func (f *finalizeREST) Destroy() {}

func (f *finalizeREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return f.finalize.Update(ctx, name, info, create, update, false, options)
}

func (f *finalizeREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return f.finalize.GetResetFields()
}
