package classes

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	storagelisters "k8s.io/client-go/listers/storage/v1"
)

// Resize lets claims grow only where their class says that their volumes can.
type Resize struct {
	// Classes is nil where there are none: then nothing grows.
	Classes storagelisters.StorageClassLister
}

var _ admission.ValidationInterface = Resize{}

//lint:ignore ST1005 upstream's words
var errOnlyBound = errors.New("Only bound persistent volume claims can be expanded")

func (Resize) Handles(operation admission.Operation) bool { return operation == admission.Update }

func (p Resize) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	claim, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
	old, replaces := a.GetOldObject().(*corev1.PersistentVolumeClaim)
	if !ok || !replaces || a.GetSubresource() != "" {
		return nil
	}
	before, after := old.Spec.Resources.Requests[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if after.Cmp(before) <= 0 {
		return nil
	}
	if old.Status.Phase != corev1.ClaimBound {
		return admission.NewForbidden(a, errOnlyBound)
	}
	if !p.grows(classOf(claim), classOf(old)) {
		return admission.NewForbidden(a, errors.New("only dynamically provisioned pvc can be resized and "+
			"the storageclass that provisions the pvc must support resize"))
	}
	return nil
}

func (p Resize) grows(class, before string) bool {
	if class == "" || class != before || p.Classes == nil {
		return false
	}
	c, err := p.Classes.Get(class)
	return err == nil && c.AllowVolumeExpansion != nil && *c.AllowVolumeExpansion
}

// classOf is the class that a claim names, by the annotation of old first.
func classOf(claim *corev1.PersistentVolumeClaim) string {
	if name, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return name
	}
	if claim.Spec.StorageClassName != nil {
		return *claim.Spec.StorageClassName
	}
	return ""
}
