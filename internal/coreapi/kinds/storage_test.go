package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestInvalidStorageObjectsAreRejected(t *testing.T) {
	kindtest.Refuses(t, []kindtest.Create{
		{"a class of nobody", kindtest.Decode[storagev1.StorageClass](t, "metadata: {name: a}\nreclaimPolicy: Recycle\nvolumeBindingMode: Later"), []string{
			"provisioner: Required value", `reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"`,
			`volumeBindingMode: Unsupported value: "Later": supported values: "Immediate", "WaitForFirstConsumer"`}},
		{"topologies twice", kindtest.Decode[storagev1.StorageClass](t, "metadata: {name: a}\nprovisioner: p\nallowedTopologies: [{matchLabelExpressions: [{key: z, values: [a, a]}]}, {matchLabelExpressions: [{key: z, values: [a]}]}]"),
			[]string{`allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: "a"`, `allowedTopologies[1].matchLabelExpressions: Duplicate value: ""`}},
		{"an attachment of nothing", kindtest.Decode[storagev1.VolumeAttachment](t, "metadata: {name: a}\nspec: {attacher: '', nodeName: '', source: {}}"), []string{
			"spec.attacher: Required value", "spec.nodeName: Invalid value: ...", "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"}},
		{"an inline volume with a claim", kindtest.Decode[storagev1.VolumeAttachment](t, "metadata: {name: a}\nspec: {attacher: a, nodeName: n, source: {inlineVolumeSpec: {accessModes: [ReadWriteOnce], claimRef: {name: c}, nfs: {server: s, path: /}}}}"),
			[]string{"spec.source.inlineVolumeSpec.claimRef: Forbidden: may not be specified in the context of inline volumes",
				"spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes"}},
		{"a driver that wants tokens for a moment", kindtest.Decode[storagev1.CSIDriver](t, "metadata: {name: a}\nspec: {nodeAllocatableUpdatePeriodSeconds: 5, tokenRequests: [{audience: a, expirationSeconds: 60}, {audience: a}]}"), []string{
			"spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 5: must be greater than or equal to 10 seconds",
			"spec.tokenRequests[0].expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes", `spec.tokenRequests[1].audience: Duplicate value: "a"`}},
		{"a node's driver twice", kindtest.Decode[storagev1.CSINode](t, "metadata: {name: n}\nspec: {drivers: [{name: a, nodeID: x}, {name: a, nodeID: ''}]}"),
			[]string{`spec.drivers[1].name: Duplicate value: "a"`, "spec.drivers[1].nodeID: Required value"}},
		{"less than no capacity", kindtest.Decode[storagev1.CSIStorageCapacity](t, "metadata: {name: a, namespace: ns}\nstorageClassName: a\ncapacity: -1"),
			[]string{`capacity: Invalid value: "-1": must be greater than or equal to 0`}},
		{"attributes without any", kindtest.Decode[storagev1.VolumeAttributesClass](t, "metadata: {name: a}\ndriverName: d"),
			[]string{"parameters: Required value: must contain at least one key/value pair"}},
	})
	kindtest.Changes(t, kindtest.Decode[storagev1.StorageClass](t, "metadata: {name: a}\nprovisioner: p\nparameters: {a: b}"), map[string]kindtest.Change[*storagev1.StorageClass]{
		"expansion allowed": {func(c *storagev1.StorageClass) { c.AllowVolumeExpansion = ptr.To(true) }, nil},
		"everything else": {func(c *storagev1.StorageClass) {
			c.Provisioner, c.Parameters["a"], c.ReclaimPolicy = "q", "c", ptr.To(corev1.PersistentVolumeReclaimRetain)
			c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
		}, []string{"parameters: Invalid value: ...", `provisioner: Invalid value: "q": field is immutable`,
			`reclaimPolicy: Invalid value: "Retain": field is immutable`, `volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable`}},
	})
	kindtest.Changes(t, kindtest.Decode[storagev1.CSINode](t, "metadata: {name: n}\nspec: {drivers: [{name: a, nodeID: x}]}"), map[string]kindtest.Change[*storagev1.CSINode]{
		"room for more volumes": {func(n *storagev1.CSINode) {
			n.Spec.Drivers[0].Allocatable = &storagev1.VolumeNodeResources{Count: ptr.To[int32](5)}
		}, nil},
		"another id": {func(n *storagev1.CSINode) { n.Spec.Drivers[0].NodeID = "y" }, []string{"spec.drivers: Invalid value: ..."}},
		"gone":       {func(n *storagev1.CSINode) { n.Spec.Drivers = nil }, nil},
	})
}
