package classes

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/admission"
	storagelisters "k8s.io/client-go/listers/storage/v1"
)

func TestTheGrowthOfAClaim(t *testing.T) {
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
		old         string // its class, when that is another
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
			err := Resize{Classes: known}.Validate(t.Context(), a, nil)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
