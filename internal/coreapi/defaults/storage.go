package defaults

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

func DefaultPersistentVolume(v *corev1.PersistentVolume) {
	set(&v.Status.Phase, corev1.VolumePending)
	set(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	point(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	milli(v.Spec.Capacity)
	volumeSource(&v.Spec.PersistentVolumeSource)
}

// volumeSource holds the defaults of storage systems, as driverVolume does for the volumes of pods.
func volumeSource(s *corev1.PersistentVolumeSource) {
	switch {
	case s.HostPath != nil:
		point(&s.HostPath.Type, corev1.HostPathUnset)
	case s.ISCSI != nil:
		set(&s.ISCSI.ISCSIInterface, "default")
	case s.RBD != nil:
		set(&s.RBD.RBDPool, "rbd")
		set(&s.RBD.RadosUser, "admin")
		set(&s.RBD.Keyring, "/etc/ceph/keyring")
	case s.ScaleIO != nil:
		set(&s.ScaleIO.StorageMode, "ThinProvisioned")
		set(&s.ScaleIO.FSType, "xfs")
	case s.AzureDisk != nil:
		point(&s.AzureDisk.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		point(&s.AzureDisk.Kind, corev1.AzureSharedBlobDisk)
		point(&s.AzureDisk.FSType, "ext4")
		point(&s.AzureDisk.ReadOnly, false)
	}
}

func DefaultPersistentVolumeClaim(c *corev1.PersistentVolumeClaim) {
	set(&c.Status.Phase, corev1.ClaimPending)
	claimSpec(&c.Spec)
	milli(c.Status.Capacity)
	milli(c.Status.AllocatedResources)
}

// claimSpec is also what templates of claims are filled in with.
func claimSpec(s *corev1.PersistentVolumeClaimSpec) {
	point(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
	milli(s.Resources.Limits)
	milli(s.Resources.Requests)
}

func DefaultStorageClass(c *storagev1.StorageClass) {
	point(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
	point(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
}

func DefaultVolumeAttachment(a *storagev1.VolumeAttachment) {
	if inline := a.Spec.Source.InlineVolumeSpec; inline != nil {
		milli(inline.Capacity)
		volumeSource(&inline.PersistentVolumeSource)
	}
}

func DefaultCSIDriver(d *storagev1.CSIDriver) {
	point(&d.Spec.AttachRequired, true)
	point(&d.Spec.PodInfoOnMount, false)
	point(&d.Spec.StorageCapacity, false)
	point(&d.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	point(&d.Spec.RequiresRepublish, false)
	point(&d.Spec.SELinuxMount, false)
	point(&d.Spec.PreventPodSchedulingIfMissing, false)
	if len(d.Spec.VolumeLifecycleModes) == 0 {
		d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}
