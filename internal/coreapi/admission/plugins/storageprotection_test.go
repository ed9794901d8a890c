package plugins

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

func TestStorageObjectsGetProtectionFinalizer(t *testing.T) {
	has := func(finalizers ...string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "a", Finalizers: finalizers}
	}
	core, storage := corev1.SchemeGroupVersion, storagev1.SchemeGroupVersion
	for name, c := range map[string]struct {
		object      runtime.Object
		resource    schema.GroupVersionResource
		subresource string
		want        []string
	}{
		"a volume":                 {&corev1.PersistentVolume{}, core.WithResource("persistentvolumes"), "", []string{"kubernetes.io/pv-protection"}},
		"a claim with a finalizer": {&corev1.PersistentVolumeClaim{ObjectMeta: has("mine/x")}, core.WithResource("persistentvolumeclaims"), "", []string{"mine/x", "kubernetes.io/pvc-protection"}},
		"a class":                  {&storagev1.VolumeAttributesClass{}, storage.WithResource("volumeattributesclasses"), "", []string{"kubernetes.io/vac-protection"}},
		"a volume that has it":     {&corev1.PersistentVolume{ObjectMeta: has("kubernetes.io/pv-protection")}, core.WithResource("persistentvolumes"), "", []string{"kubernetes.io/pv-protection"}},
		"the status of a claim":    {&corev1.PersistentVolumeClaim{}, core.WithResource("persistentvolumeclaims"), "status", nil},
		"something else":           {&corev1.ConfigMap{}, core.WithResource("configmaps"), "", nil},
	} {
		a := admission.NewAttributesRecord(c.object, nil, schema.GroupVersionKind{}, "", "a", c.resource, c.subresource, admission.Create, &metav1.CreateOptions{}, false, nil)
		if err := (storageProtection{}).Admit(t.Context(), a, nil); err != nil {
			t.Errorf("Admit of %s failed: %v, want no error", name, err)
		}
		if got := c.object.(metav1.Object).GetFinalizers(); !slices.Equal(got, c.want) {
			t.Errorf("finalizers of %s = %q, want %q", name, got, c.want)
		}
	}
	if (storageProtection{}).Handles(admission.Update) {
		t.Error("Handles(Update) = true, want false: an update would add the removed finalizer again")
	}
}
