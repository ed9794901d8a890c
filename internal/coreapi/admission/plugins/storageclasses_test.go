package plugins

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// marked returns the metadata of a class with this creation time in seconds, and with the annotation unless it is empty.
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

func TestClaimGetsNewestDefaultStorageClass(t *testing.T) {
	const beta = "storageclass.beta.kubernetes.io/is-default-class"
	named := func(name string) *string { return &name }
	for name, c := range map[string]struct {
		classes []metav1.ObjectMeta
		claim   corev1.PersistentVolumeClaim
		want    *string
	}{
		"no class at all":      {},
		"no default":           {classes: []metav1.ObjectMeta{marked("a", 1, "", ""), marked("b", 2, defaultStorageClassAnnotation, "false")}},
		"a default":            {classes: []metav1.ObjectMeta{marked("a", 1, "", ""), marked("b", 2, defaultStorageClassAnnotation, "true")}, want: named("b")},
		"by the old mark":      {classes: []metav1.ObjectMeta{marked("a", 1, beta, "true")}, want: named("a")},
		"the newest of two":    {classes: []metav1.ObjectMeta{marked("a", 1, defaultStorageClassAnnotation, "true"), marked("b", 2, defaultStorageClassAnnotation, "true")}, want: named("b")},
		"two of one second":    {classes: []metav1.ObjectMeta{marked("b", 1, defaultStorageClassAnnotation, "true"), marked("a", 1, defaultStorageClassAnnotation, "true")}, want: named("a")},
		"a class is named":     {classes: []metav1.ObjectMeta{marked("a", 1, defaultStorageClassAnnotation, "true")}, claim: corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: named("x")}}, want: named("x")},
		"no class is wished":   {classes: []metav1.ObjectMeta{marked("a", 1, defaultStorageClassAnnotation, "true")}, claim: corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: named("")}}, want: named("")},
		"named in the old way": {classes: []metav1.ObjectMeta{marked("a", 1, defaultStorageClassAnnotation, "true")}, claim: corev1.PersistentVolumeClaim{ObjectMeta: marked("c", 1, corev1.BetaStorageClassAnnotation, "x")}},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*storagev1.StorageClass
			for _, m := range c.classes {
				all = append(all, &storagev1.StorageClass{ObjectMeta: m})
			}
			plugin := defaultStorageClass{storagelisters.NewStorageClassLister(indexOf(t, all))}
			if err := plugin.Admit(t.Context(), creating(&c.claim, corev1.SchemeGroupVersion, "PersistentVolumeClaim", "persistentvolumeclaims"), nil); err != nil {
				t.Fatal(err)
			}
			got := c.claim.Spec.StorageClassName
			if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
				t.Errorf("storageClassName = %q, want %q", ptr.Deref(got, "unset"), ptr.Deref(c.want, "unset"))
			}
		})
	}
}

func TestIngressGetsDefaultClass(t *testing.T) {
	mark := networkingv1.AnnotationIsDefaultIngressClass
	plugin := defaultIngressClass{networkinglisters.NewIngressClassLister(indexOf(t, []*networkingv1.IngressClass{
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
				t.Errorf("ingressClassName = %q, want %q", got, c.want)
			}
		})
	}
}

func TestObjectsAreAdmittedWithoutClassListers(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{}
	if err := (defaultStorageClass{}).Admit(t.Context(), creating(claim, corev1.SchemeGroupVersion, "PersistentVolumeClaim", "persistentvolumeclaims"), nil); err != nil {
		t.Error(err)
	}
	if err := (defaultIngressClass{}).Admit(t.Context(), creating(&networkingv1.Ingress{}, networkingv1.SchemeGroupVersion, "Ingress", "ingresses"), nil); err != nil {
		t.Error(err)
	}
}

func TestClaimGrowthNeedsExpandableStorageClass(t *testing.T) {
	yes, no := true, false
	elastic := &storagev1.StorageClass{ObjectMeta: marked("elastic", 1, "", ""), AllowVolumeExpansion: &yes}
	rigid := &storagev1.StorageClass{ObjectMeta: marked("rigid", 1, "", ""), AllowVolumeExpansion: &no}
	silent := &storagev1.StorageClass{ObjectMeta: marked("silent", 1, "", "")}
	known := storagelisters.NewStorageClassLister(indexOf(t, []*storagev1.StorageClass{elastic, rigid, silent}))
	claim := func(class, size string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			}},
			Status: corev1.PersistentVolumeClaimStatus{Phase: phase},
		}
	}
	const dynamic = "only dynamically provisioned pvc can be resized"
	for name, c := range map[string]struct {
		class, size string
		phase       corev1.PersistentVolumeClaimPhase
		old         string // the old class, if it differs
		subresource string
		want        string
	}{
		"of a class that grows":           {class: "elastic", size: "2Gi", phase: corev1.ClaimBound},
		"not bound yet":                   {class: "elastic", size: "2Gi", phase: corev1.ClaimPending, want: "Only bound persistent volume claims"},
		"of a class that does not":        {class: "rigid", size: "2Gi", phase: corev1.ClaimBound, want: dynamic},
		"of a class that does not say":    {class: "silent", size: "2Gi", phase: corev1.ClaimBound, want: dynamic},
		"of a class that is not there":    {class: "gone", size: "2Gi", phase: corev1.ClaimBound, want: dynamic},
		"of no class":                     {class: "", size: "2Gi", phase: corev1.ClaimBound, want: dynamic},
		"with its class":                  {class: "elastic", old: "rigid", size: "2Gi", phase: corev1.ClaimBound, want: dynamic},
		"by nothing":                      {class: "rigid", size: "1Gi", phase: corev1.ClaimPending},
		"backwards, for validation":       {class: "rigid", size: "1Mi", phase: corev1.ClaimPending},
		"in what its status asks to know": {class: "rigid", size: "2Gi", phase: corev1.ClaimBound, subresource: "status"},
	} {
		t.Run(name, func(t *testing.T) {
			before := claim(c.class, "1Gi", c.phase)
			if c.old != "" {
				before.Spec.StorageClassName = &c.old
			}
			gv := corev1.SchemeGroupVersion
			a := admission.NewAttributesRecord(claim(c.class, c.size, c.phase), before, gv.WithKind("PersistentVolumeClaim"), "ns", "x",
				gv.WithResource("persistentvolumeclaims"), c.subresource, admission.Update, nil, false, nil)
			err := persistentVolumeClaimResize{Classes: known}.Validate(t.Context(), a, nil)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("Validate error = %v, want an error that contains %q (empty: no error)", err, c.want)
			}
		})
	}
}
