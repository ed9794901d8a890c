package defaults

import (
	corev1 "k8s.io/api/core/v1"
)

// VolumeSource holds the defaults of storage systems, as driverVolume does for the volumes of pods.
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
