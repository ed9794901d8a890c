package kinds_test

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestStorageDefaultsOfTheCluster(t *testing.T) {
	kindtest.Defaults(t, []kindtest.Default{
		{"a storage class", &storagev1.StorageClass{}, "provisioner: p", "metadata: {}\nprovisioner: p\nreclaimPolicy: Delete\nvolumeBindingMode: Immediate"},
		{"a storage driver", &storagev1.CSIDriver{}, "spec: {attachRequired: false}",
			"metadata: {}\nspec: {attachRequired: false, podInfoOnMount: false, storageCapacity: false, fsGroupPolicy: ReadWriteOnceWithFSType, requiresRepublish: false, " +
				"seLinuxMount: false, preventPodSchedulingIfMissing: false, volumeLifecycleModes: [Persistent]}"},
	})
}
