// Package classes is the admission plugins that go by classes. DefaultStorageClass and DefaultIngressClass: what names no
// class gets the one that is marked as default. PersistentVolumeClaimResize: a claim grows if its class lets it.
package classes

import (
	"cmp"
	"context"
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

// The annotations that mark a default. The beta ones are from before 1.6 and 1.18, and still written.
const (
	defaultStorageClass     = "storageclass.kubernetes.io/is-default-class"
	defaultStorageClassBeta = "storageclass.beta.kubernetes.io/is-default-class"
	ingressClassAnnotation  = "kubernetes.io/ingress.class"
)

// Storage gives claims their class.
type Storage struct {
	// Classes is nil where there are none.
	Classes storagelisters.StorageClassLister
}

// Ingress gives ingresses theirs.
type Ingress struct {
	// Classes is nil where there are none.
	Classes networkinglisters.IngressClassLister
}

var (
	_ admission.MutationInterface = Storage{}
	_ admission.MutationInterface = Ingress{}
)

func (Storage) Handles(operation admission.Operation) bool { return operation == admission.Create }
func (Ingress) Handles(operation admission.Operation) bool { return operation == admission.Create }

func (p Storage) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	claim, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
	if !ok || a.GetSubresource() != "" || p.Classes == nil {
		return nil
	}
	// A class that is named and empty is a wish too: none.
	if _, named := claim.Annotations[corev1.BetaStorageClassAnnotation]; named || claim.Spec.StorageClassName != nil {
		return nil
	}
	all, err := p.Classes.List(labels.Everything())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if class := newestDefault(all, func(c *storagev1.StorageClass) bool {
		return c.Annotations[defaultStorageClass] == "true" || c.Annotations[defaultStorageClassBeta] == "true"
	}); class != "" {
		claim.Spec.StorageClassName = &class
	}
	return nil
}

func (p Ingress) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
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

// newestDefault is the name of the default that was created last, of two of the same second the first by name, or
// empty. More than one default is a mistake, and upstream's answer to it.
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
