package core

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

// prepareNamespace makes a namespace active and adds the finalizer that keeps it until it is empty. The namespace controller
// removes the finalizer. The label lets selectors match a namespace by name.
func prepareNamespace(obj runtime.Object) {
	ns := obj.(*corev1.Namespace)
	ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
	// Defaulting has set the label, unless the name was generated later.
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

func namespaceResource() registry.Resource {
	return registry.Resource{
		Name: "namespaces", Singular: "namespace", ShortNames: []string{"ns"}, ClusterScoped: true,
		Object: &corev1.Namespace{}, List: &corev1.NamespaceList{}, WatchCache: true, AllowUnconditionalUpdate: true,
		Samples: []string{
			"metadata: {name: a}\n" +
				"spec: {finalizers: [kubernetes]}",
		},
		Rules:    validate.WithStatus(validateNamespace, validateNamespaceUpdate, validateNamespaceStatus).CheckFinalizers(),
		Defaults: defaults.Of(defaultNamespace),
		Columns:  namespaceColumns,
		Fields:   namespaceFields(),
		Spec:     registry.SpecOf(func(n *corev1.Namespace) *corev1.NamespaceSpec { return &n.Spec }),
		Status:   registry.StatusOf(func(n *corev1.Namespace) *corev1.NamespaceStatus { return &n.Status }), StatusChangesMetadata: true,
		PrepareCreate: prepareNamespace, PrepareUpdate: keepNamespaceFinalizers,
		Storages: namespaceStorages,
	}
}

func namespaceColumns() columns.Printer {
	return columns.Show(func(n *corev1.Namespace, now time.Time) []any {
		return []any{n.Name, string(n.Status.Phase), columns.AgeOf(n, now)}
	}, columns.Name(), columns.Text("Status", "The phase of the namespace: Active, or Terminating while it is emptied"), columns.Age())
}

// defaultNamespace labels a namespace with its name, so that label selectors of policies and webhooks can match one namespace.
func defaultNamespace(n *corev1.Namespace) {
	defaults.Set(&n.Status.Phase, corev1.NamespaceActive)
	if n.Name == "" {
		return // the name is generated later; then the strategy sets the label
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
}

func namespaceFields() *selectable.Fields {
	return selectable.Of(selectable.Own("status.phase"), func(set fields.Set, o *corev1.Namespace) {
		set["status.phase"] = string(o.Status.Phase)
		set["name"] = o.Name // a mistake in kube-apiserver that admission plugins may rely on; no field label maps to it
	})
}

func validateNamespace(n *corev1.Namespace) field.ErrorList {
	errs := validate.ObjectMeta(&n.ObjectMeta, validate.ClusterScoped, validation.ValidateNamespaceName)
	return append(errs, namespaceFinalizers(n, func(path *field.Path, _ int) *field.Path { return path })...)
}

// validateNamespaceUpdate has no rules beyond the ones for metadata: the strategy restores spec.finalizers and status, which
// change only through the finalize and status subresources.
func validateNamespaceUpdate(_, _ *corev1.Namespace) field.ErrorList { return nil }

// validateNamespaceStatus ties the phase to the deletion timestamp: writing Active cannot restore a namespace.
func validateNamespaceStatus(n, _ *corev1.Namespace) field.ErrorList {
	path := field.NewPath("status", "Phase")
	if n.DeletionTimestamp.IsZero() {
		if n.Status.Phase != corev1.NamespaceActive {
			return field.ErrorList{field.Invalid(path, n.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")}
		}
		return nil
	}
	if n.Status.Phase != corev1.NamespaceTerminating {
		return field.ErrorList{field.Invalid(path, n.Status.Phase,
			"may only be 'Terminating' if `deletionTimestamp` is not empty")}
	}
	return nil
}

// validateFinalize validates a write through the finalize subresource.
func validateFinalize(n, old *corev1.Namespace) field.ErrorList {
	return append(validate.MetaUpdate(n, old), namespaceFinalizers(n, (*field.Path).Index)...)
}

// namespaceFinalizers reports errors for the list on creation and for the entry on finalization, as kube-apiserver does.
func namespaceFinalizers(n *corev1.Namespace, blamed func(*field.Path, int) *field.Path) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "finalizers")
	for i, finalizer := range n.Spec.Finalizers {
		errs = append(errs, validation.ValidateFinalizerName(string(finalizer), blamed(path, i))...)
		errs = append(errs, validate.StandardFinalizer(string(finalizer), blamed(path, i))...)
	}
	return errs
}
