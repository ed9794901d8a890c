package defaults

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// volume is an empty directory when it names no source at all.
func volume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	switch {
	case v.HostPath != nil:
		point(&v.HostPath.Type, corev1.HostPathUnset)
	case v.Secret != nil:
		point(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	case v.ConfigMap != nil:
		point(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	case v.DownwardAPI != nil:
		point(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		fieldRefs(v.DownwardAPI.Items)
	case v.Projected != nil:
		point(&v.Projected.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
		projections(v.Projected.Sources)
	case v.Image != nil:
		set(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		point(&v.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	default:
		driverVolume(&v.VolumeSource)
	}
}

func projections(sources []corev1.VolumeProjection) {
	for i := range sources {
		if token := sources[i].ServiceAccountToken; token != nil {
			point(&token.ExpirationSeconds, int64(time.Hour/time.Second))
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

// driverVolume holds the defaults of storage systems that have their own volume source.
func driverVolume(v *corev1.VolumeSource) {
	switch {
	case v.ISCSI != nil:
		set(&v.ISCSI.ISCSIInterface, "default")
	case v.RBD != nil:
		set(&v.RBD.RBDPool, "rbd")
		set(&v.RBD.RadosUser, "admin")
		set(&v.RBD.Keyring, "/etc/ceph/keyring")
	case v.ScaleIO != nil:
		set(&v.ScaleIO.StorageMode, "ThinProvisioned")
		set(&v.ScaleIO.FSType, "xfs")
	case v.AzureDisk != nil:
		point(&v.AzureDisk.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		point(&v.AzureDisk.Kind, corev1.AzureSharedBlobDisk)
		point(&v.AzureDisk.FSType, "ext4")
		point(&v.AzureDisk.ReadOnly, false)
	}
}
