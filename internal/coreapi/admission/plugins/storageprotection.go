package plugins

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

// storageProtection adds finalizers to new volumes, claims and VolumeAttributesClasses, which keep them as long as they are in
// use. Controllers of kube-controller-manager remove the finalizers.
type storageProtection struct{}

var _ admission.MutationInterface = storageProtection{}

var protectingFinalizers = map[schema.GroupResource]string{
	corev1.Resource("persistentvolumes"):          "kubernetes.io/pv-protection",
	corev1.Resource("persistentvolumeclaims"):     "kubernetes.io/pvc-protection",
	storagev1.Resource("volumeattributesclasses"): "kubernetes.io/vac-protection",
}

func (storageProtection) Handles(operation admission.Operation) bool {
	return operation == admission.Create
}

func (storageProtection) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	finalizer, protected := protectingFinalizers[a.GetResource().GroupResource()]
	if !protected || a.GetSubresource() != "" {
		return nil
	}
	o, err := meta.Accessor(a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if all := o.GetFinalizers(); !slices.Contains(all, finalizer) {
		o.SetFinalizers(append(slices.Clone(all), finalizer))
	}
	return nil
}
