package classes

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
)

// marked is the metadata of a class that was created at a second, with an annotation unless it is empty.
func marked(name string, second int64, annotation, value string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(second, 0)}
	if annotation != "" {
		m.Annotations = map[string]string{annotation: value}
	}
	return m
}

func indexOf[T any](t *testing.T, all []T) cache.Indexer {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for _, c := range all {
		if err := indexer.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	return indexer
}

func creating(obj runtime.Object, gv schema.GroupVersion, kind, resource string) admission.Attributes {
	return admission.NewAttributesRecord(obj, nil, gv.WithKind(kind), "ns", "x", gv.WithResource(resource), "", admission.Create, nil, false, nil)
}

func TestTheClassOfAClaim(t *testing.T) {
	const beta = "storageclass.beta.kubernetes.io/is-default-class"
	named := func(name string) *string { return &name }
	for name, c := range map[string]struct {
		classes []metav1.ObjectMeta
		claim   corev1.PersistentVolumeClaim
		want    *string
	}{
		"no class at all":      {},
		"no default":           {classes: []metav1.ObjectMeta{marked("a", 1, "", ""), marked("b", 2, defaultStorageClass, "false")}},
		"a default":            {classes: []metav1.ObjectMeta{marked("a", 1, "", ""), marked("b", 2, defaultStorageClass, "true")}, want: named("b")},
		"by the old mark":      {classes: []metav1.ObjectMeta{marked("a", 1, beta, "true")}, want: named("a")},
		"the newest of two":    {classes: []metav1.ObjectMeta{marked("a", 1, defaultStorageClass, "true"), marked("b", 2, defaultStorageClass, "true")}, want: named("b")},
		"two of one second":    {classes: []metav1.ObjectMeta{marked("b", 1, defaultStorageClass, "true"), marked("a", 1, defaultStorageClass, "true")}, want: named("a")},
		"a class is named":     {classes: []metav1.ObjectMeta{marked("a", 1, defaultStorageClass, "true")}, claim: corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: named("x")}}, want: named("x")},
		"no class is wished":   {classes: []metav1.ObjectMeta{marked("a", 1, defaultStorageClass, "true")}, claim: corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: named("")}}, want: named("")},
		"named in the old way": {classes: []metav1.ObjectMeta{marked("a", 1, defaultStorageClass, "true")}, claim: corev1.PersistentVolumeClaim{ObjectMeta: marked("c", 1, corev1.BetaStorageClassAnnotation, "x")}},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*storagev1.StorageClass
			for _, m := range c.classes {
				all = append(all, &storagev1.StorageClass{ObjectMeta: m})
			}
			plugin := Storage{storagelisters.NewStorageClassLister(indexOf(t, all))}
			if err := plugin.Admit(t.Context(), creating(&c.claim, corev1.SchemeGroupVersion, "PersistentVolumeClaim", "persistentvolumeclaims"), nil); err != nil {
				t.Fatal(err)
			}
			got := c.claim.Spec.StorageClassName
			if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
				t.Errorf("class %v", got)
			}
		})
	}
}

func TestTheClassOfAnIngress(t *testing.T) {
	mark := networkingv1.AnnotationIsDefaultIngressClass
	plugin := Ingress{networkinglisters.NewIngressClassLister(indexOf(t, []*networkingv1.IngressClass{
		{ObjectMeta: marked("old", 1, mark, "true")}, {ObjectMeta: marked("new", time.Now().Unix(), mark, "true")}, {ObjectMeta: marked("x", 3, mark, "no")},
	}))}
	for name, c := range map[string]struct {
		ingress networkingv1.Ingress
		want    string
	}{
		"none is named":        {want: "new"},
		"one is named":         {ingress: networkingv1.Ingress{Spec: networkingv1.IngressSpec{IngressClassName: new(string)}}},
		"named in the old way": {ingress: networkingv1.Ingress{ObjectMeta: marked("i", 1, "kubernetes.io/ingress.class", "nginx")}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := plugin.Admit(t.Context(), creating(&c.ingress, networkingv1.SchemeGroupVersion, "Ingress", "ingresses"), nil); err != nil {
				t.Fatal(err)
			}
			got := ""
			if c.ingress.Spec.IngressClassName != nil {
				got = *c.ingress.Spec.IngressClassName
			}
			if got != c.want {
				t.Errorf("class %q", got)
			}
		})
	}
}

func TestAServerWithoutClasses(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{}
	if err := (Storage{}).Admit(t.Context(), creating(claim, corev1.SchemeGroupVersion, "PersistentVolumeClaim", "persistentvolumeclaims"), nil); err != nil {
		t.Error(err)
	}
	if err := (Ingress{}).Admit(t.Context(), creating(&networkingv1.Ingress{}, networkingv1.SchemeGroupVersion, "Ingress", "ingresses"), nil); err != nil {
		t.Error(err)
	}
}
