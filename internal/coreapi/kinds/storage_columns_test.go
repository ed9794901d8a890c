package kinds_test

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestStorageTables(t *testing.T) {
	kindtest.Table[storagev1.StorageClass](t,
		"metadata: {name: plain}\nprovisioner: example.com/disk",
		"metadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}\nprovisioner: example.com/ssd\nreclaimPolicy: Retain\nvolumeBindingMode: WaitForFirstConsumer\nallowVolumeExpansion: true")
	kindtest.Table[storagev1.VolumeAttachment](t,
		"metadata: {name: a}\nspec: {attacher: csi.example.com, nodeName: n1, source: {persistentVolumeName: pv1}}\nstatus: {attached: true}",
		"metadata: {name: b}\nspec: {attacher: csi.example.com, nodeName: n1, source: {}}")
	kindtest.Table[storagev1.CSIDriver](t, "metadata: {name: bare}",
		"metadata: {name: full}\nspec: {attachRequired: false, podInfoOnMount: true, storageCapacity: true, requiresRepublish: true, tokenRequests: [{audience: a}, {audience: b}], volumeLifecycleModes: [Persistent, Ephemeral]}")
	kindtest.Table[storagev1.CSINode](t, "metadata: {name: n1}\nspec: {drivers: [{name: a, nodeID: x}, {name: b, nodeID: y}]}")
	kindtest.Table[storagev1.CSIStorageCapacity](t,
		"metadata: {name: a}\nstorageClassName: fast\ncapacity: 10Gi", "metadata: {name: b}\nstorageClassName: slow")
	kindtest.Table[storagev1.VolumeAttributesClass](t, "metadata: {name: gold}\ndriverName: csi.example.com")
}
