package defaults

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// volume sets the defaults of a volume. A volume without a source is an empty directory.
func volume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	switch {
	case v.HostPath != nil:
		Point(&v.HostPath.Type, corev1.HostPathUnset)
	case v.Secret != nil:
		Point(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	case v.ConfigMap != nil:
		Point(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	case v.DownwardAPI != nil:
		Point(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		fieldRefs(v.DownwardAPI.Items)
	case v.Projected != nil:
		Point(&v.Projected.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
		projections(v.Projected.Sources)
	case v.Image != nil:
		Set(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		Point(&v.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	default:
		driverVolume(&v.VolumeSource)
	}
}

func projections(sources []corev1.VolumeProjection) {
	for i := range sources {
		if token := sources[i].ServiceAccountToken; token != nil {
			Point(&token.ExpirationSeconds, int64(time.Hour/time.Second))
		}
		if downward := sources[i].DownwardAPI; downward != nil {
			fieldRefs(downward.Items)
		}
	}
}

func fieldRefs(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		fieldRef(files[i].FieldRef)
	}
}

// driverVolume sets the defaults of storage systems that have a volume source.
func driverVolume(v *corev1.VolumeSource) {
	switch {
	case v.ISCSI != nil:
		Set(&v.ISCSI.ISCSIInterface, "default")
	case v.RBD != nil:
		Set(&v.RBD.RBDPool, "rbd")
		Set(&v.RBD.RadosUser, "admin")
		Set(&v.RBD.Keyring, "/etc/ceph/keyring")
	case v.ScaleIO != nil:
		Set(&v.ScaleIO.StorageMode, "ThinProvisioned")
		Set(&v.ScaleIO.FSType, "xfs")
	case v.AzureDisk != nil:
		Point(&v.AzureDisk.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		Point(&v.AzureDisk.Kind, corev1.AzureSharedBlobDisk)
		Point(&v.AzureDisk.FSType, "ext4")
		Point(&v.AzureDisk.ReadOnly, false)
	}
}

// VolumeSource sets the defaults of storage systems in persistent volumes, like driverVolume for pods.
func VolumeSource(s *corev1.PersistentVolumeSource) {
	switch {
	case s.HostPath != nil:
		Point(&s.HostPath.Type, corev1.HostPathUnset)
	case s.ISCSI != nil:
		Set(&s.ISCSI.ISCSIInterface, "default")
	case s.RBD != nil:
		Set(&s.RBD.RBDPool, "rbd")
		Set(&s.RBD.RadosUser, "admin")
		Set(&s.RBD.Keyring, "/etc/ceph/keyring")
	case s.ScaleIO != nil:
		Set(&s.ScaleIO.StorageMode, "ThinProvisioned")
		Set(&s.ScaleIO.FSType, "xfs")
	case s.AzureDisk != nil:
		Point(&s.AzureDisk.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		Point(&s.AzureDisk.Kind, corev1.AzureSharedBlobDisk)
		Point(&s.AzureDisk.FSType, "ext4")
		Point(&s.AzureDisk.ReadOnly, false)
	}
}
