package plugins

import (
	"cmp"
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
)

// The annotations that mark a default. The beta ones predate 1.6 and 1.18, and are still in use.
const (
	defaultStorageClassAnnotation     = "storageclass.kubernetes.io/is-default-class"
	defaultStorageClassBetaAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
	ingressClassAnnotation            = "kubernetes.io/ingress.class"
)

// defaultStorageClass sets the storage class of claims without one to the default class.
type defaultStorageClass struct {
	// Classes is nil if storage classes are not served.
	Classes storagelisters.StorageClassLister
}

// defaultIngressClass sets the class of ingresses without one to the default class.
type defaultIngressClass struct {
	// Classes is nil if ingress classes are not served.
	Classes networkinglisters.IngressClassLister
}

var (
	_ admission.MutationInterface = defaultStorageClass{}
	_ admission.MutationInterface = defaultIngressClass{}
)

func (defaultStorageClass) Handles(operation admission.Operation) bool {
	return operation == admission.Create
}
func (defaultIngressClass) Handles(operation admission.Operation) bool {
	return operation == admission.Create
}

func (p defaultStorageClass) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	claim, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
	if !ok || a.GetSubresource() != "" || p.Classes == nil {
		return nil
	}
	// An empty class name means no class.
	if _, named := claim.Annotations[corev1.BetaStorageClassAnnotation]; named || claim.Spec.StorageClassName != nil {
		return nil
	}
	all, err := p.Classes.List(labels.Everything())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if class := newestDefault(all, func(c *storagev1.StorageClass) bool {
		return c.Annotations[defaultStorageClassAnnotation] == "true" || c.Annotations[defaultStorageClassBetaAnnotation] == "true"
	}); class != "" {
		claim.Spec.StorageClassName = &class
	}
	return nil
}

func (p defaultIngressClass) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	ingress, ok := a.GetObject().(*networkingv1.Ingress)
	if !ok || a.GetSubresource() != "" || p.Classes == nil {
		return nil
	}
	if _, named := ingress.Annotations[ingressClassAnnotation]; named || ingress.Spec.IngressClassName != nil {
		return nil
	}
	all, err := p.Classes.List(labels.Everything())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if class := newestDefault(all, func(c *networkingv1.IngressClass) bool {
		return c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"
	}); class != "" {
		ingress.Spec.IngressClassName = &class
	}
	return nil
}

// newestDefault returns the name of the newest default class, or "". Among classes of the same second it returns the first by
// name. Upstream resolves several defaults in this way.
func newestDefault[T metav1.Object](all []T, isDefault func(T) bool) string {
	marked := slices.DeleteFunc(slices.Clone(all), func(c T) bool { return !isDefault(c) })
	if len(marked) == 0 {
		return ""
	}
	return slices.MinFunc(marked, func(a, b T) int {
		at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
		return cmp.Or(bt.Compare(at.Time), cmp.Compare(a.GetName(), b.GetName()))
	}).GetName()
}

// persistentVolumeClaimResize lets claims grow only if their class allows volume expansion.
type persistentVolumeClaimResize struct {
	// Classes is nil if storage classes are not served. Then no claim can grow.
	Classes storagelisters.StorageClassLister
}

var _ admission.ValidationInterface = persistentVolumeClaimResize{}

//lint:ignore ST1005 upstream's words
var errOnlyBound = errors.New("Only bound persistent volume claims can be expanded")

func (persistentVolumeClaimResize) Handles(operation admission.Operation) bool {
	return operation == admission.Update
}

func (p persistentVolumeClaimResize) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
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
	if !p.grows(storageClassOf(claim), storageClassOf(old)) {
		return admission.NewForbidden(a, errors.New("only dynamically provisioned pvc can be resized and "+
			"the storageclass that provisions the pvc must support resize"))
	}
	return nil
}

func (p persistentVolumeClaimResize) grows(class, before string) bool {
	if class == "" || class != before || p.Classes == nil {
		return false
	}
	c, err := p.Classes.Get(class)
	return err == nil && c.AllowVolumeExpansion != nil && *c.AllowVolumeExpansion
}

// storageClassOf returns the class of a claim, with precedence of the old annotation.
func storageClassOf(claim *corev1.PersistentVolumeClaim) string {
	if name, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return name
	}
	if claim.Spec.StorageClassName != nil {
		return *claim.Spec.StorageClassName
	}
	return ""
}
