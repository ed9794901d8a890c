package validate_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

const (
	aVolume = "metadata: {name: pv}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], "
	aClaim  = "metadata: {name: data, namespace: ns}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}"
)

func TestVolumesAreRefused(t *testing.T) {
	const csi = "csi: {driver: csi.example.com, volumeHandle: v1}"
	volume := func(spec string) *corev1.PersistentVolume {
		return decode[corev1.PersistentVolume](t, aVolume+spec+"}")
	}
	bare := func(manifest string) *corev1.PersistentVolume { return decode[corev1.PersistentVolume](t, manifest) }
	refuses(t, []create{
		{"nothing said", bare("metadata: {name: pv}"), []string{
			"spec.accessModes: Required value", "spec.capacity: Required value", `spec.capacity: Unsupported value: null: supported values: "storage"`,
			"spec: Required value: must specify a volume type",
		}},
		{"a volume of nothing", bare("metadata: {name: pv}\nspec: {capacity: {storage: '0'}, accessModes: [ReadWriteOnce], " + csi + "}"),
			[]string{`spec.capacity[storage]: Invalid value: "0": must be greater than zero`}},
		{"two places at once", volume(csi + ", nfs: {server: s, path: /a}"), []string{"spec.csi: Forbidden: may not specify more than 1 volume type"}},
		{"an access mode that does not exist", bare("metadata: {name: pv}\nspec: {capacity: {storage: 1}, accessModes: [Sometimes], " + csi + "}"),
			[]string{`spec.accessModes: Unsupported value: "Sometimes": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"`}},
		{"one pod and many", bare("metadata: {name: pv}\nspec: {capacity: {storage: 1}, accessModes: [ReadWriteOncePod, ReadWriteMany], " + csi + "}"),
			[]string{"spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"}},
		{"a path out of the host's directory", volume("hostPath: {path: /srv/../etc}"), []string{`spec.hostPath.path: Invalid value: "/srv/../etc": must not contain '..'`}},
		{"the host's root, to be emptied", volume("persistentVolumeReclaimPolicy: Recycle, hostPath: {path: /}"),
			[]string{"spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'"}},
		{"a local volume on no node", volume("local: {path: /a}"), []string{"spec.nodeAffinity: Required value: Local volume requires node affinity"}},
		{"an attributes class without a driver that knows them", volume("volumeAttributesClassName: gold, nfs: {server: s, path: a}"),
			[]string{"spec.csi: Required value: has to be specified when using volumeAttributesClassName", `spec.nfs.path: Invalid value: "a": must be an absolute path`}},
		{"a driver's secret without a namespace", volume("csi: {driver: csi.example.com, volumeHandle: v1, nodePublishSecretRef: {name: a}}"),
			[]string{"spec.csi.nodePublishSecretRef.namespace: Required value"}},
		{"a node selector without terms", volume(csi + ", nodeAffinity: {required: {nodeSelectorTerms: []}}"),
			[]string{"spec.nodeAffinity.required.nodeSelectorTerms: Required value: must have at least one node selector term"}},
		{"mount options for what is not mounted", func() *corev1.PersistentVolume {
			v := volume(csi)
			v.Annotations = map[string]string{corev1.MountOptionAnnotation: "ro"}
			return v
		}(), []string{"metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden: may not specify mount options for this volume type"}},
	})
	changes(t, volume(csi+", nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: failure-domain.beta.kubernetes.io/zone, operator: In, values: [a]}]}]}}"),
		map[string]struct {
			change func(*corev1.PersistentVolume)
			want   []string
		}{
			"moved to other data": {func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeHandle = "v2" },
				[]string{"spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation..."}},
			"a secret to grow with, given late": {func(v *corev1.PersistentVolume) {
				v.Spec.CSI.ControllerExpandSecretRef = &corev1.SecretReference{Namespace: "ns", Name: "s"}
			}, nil},
			"bound":  {func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = &corev1.ObjectReference{Name: "c"} }, nil},
			"larger": {func(v *corev1.PersistentVolume) { v.Spec.Capacity["storage"] = resource.MustParse("2Gi") }, nil},
			"a block device now": {func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) },
				[]string{`volumeMode: Invalid value: "Block": field is immutable`}},
			"the zone by its newer name": {func(v *corev1.PersistentVolume) {
				v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Key = corev1.LabelTopologyZone
			}, nil},
			"another zone": {func(v *corev1.PersistentVolume) {
				v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"b"}
			}, []string{"nodeAffinity: Invalid value: ..."}},
		})
}

func TestClaimsAreRefused(t *testing.T) {
	claim := func(rest string) *corev1.PersistentVolumeClaim {
		return decode[corev1.PersistentVolumeClaim](t, aClaim+rest+"}")
	}
	refuses(t, []create{
		{"nothing asked for", decode[corev1.PersistentVolumeClaim](t, "metadata: {name: a, namespace: ns}"),
			[]string{"spec.accessModes: Required value: at least 1 access mode is required", "spec.resources[storage]: Required value"}},
		{"a class that cannot be a name", claim(", storageClassName: Fast"), []string{`spec.storageClassName: Invalid value: "Fast": a lowercase RFC 1123...`}},
		{"filled from a kind of the core group that is no claim", claim(", dataSource: {kind: Secret, name: s}"),
			[]string{`spec.dataSource: Invalid value: "Secret": must be 'PersistentVolumeClaim' when referencing the default apiGroup`}},
		{"two sources that differ", claim(", dataSource: {kind: PersistentVolumeClaim, name: a}, dataSourceRef: {kind: PersistentVolumeClaim, name: b}"),
			[]string{"spec: Invalid value: {}: must match dataSourceRef"}},
	})
	type change = struct {
		change func(*corev1.PersistentVolumeClaim)
		want   []string
	}
	size := func(s string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests["storage"] = resource.MustParse(s) }
	}
	const frozenSpec = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims..."
	changes(t, claim(""), map[string]change{
		"bound to a volume":       {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" }, nil},
		"given the default class": {func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("fast") }, nil},
		"grown before it has any": {size("2Gi"), []string{frozenSpec}},
		"other modes":             {func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes[0] = corev1.ReadWriteMany }, []string{frozenSpec}},
		"the class of an annotation": {func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "x"}
		}, []string{"metadata.annotations[volume.beta.kubernetes.io/storage-class]: Invalid value: ..."}},
	})
	bound := claim(", volumeName: pv, storageClassName: fast, volumeAttributesClassName: gold")
	bound.Spec.Resources.Requests["storage"] = resource.MustParse("3Gi")
	bound.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{"storage": resource.MustParse("1Gi")},
		CurrentVolumeAttributesClassName: ptr.To("gold")}
	changes(t, bound, map[string]change{
		"grown":                              {size("4Gi"), nil},
		"less again, while it has not grown": {size("2Gi"), nil},
		"less than it has":                   {size("1Gi"), []string{"spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"}},
		"another volume":                     {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "other" }, []string{frozenSpec}},
		"other attributes":                   {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr.To("silver") }, nil},
		"no attributes": {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = nil },
			[]string{"spec.volumeAttributesClassName: Forbidden: update to nil is forbidden when status.currentVolumeAttributesClassName is not nil"}},
	})
}

func TestStorageIsRefused(t *testing.T) {
	refuses(t, []create{
		{"a class of nobody", decode[storagev1.StorageClass](t, "metadata: {name: a}\nreclaimPolicy: Recycle\nvolumeBindingMode: Later"), []string{
			"provisioner: Required value", `reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"`,
			`volumeBindingMode: Unsupported value: "Later": supported values: "Immediate", "WaitForFirstConsumer"`}},
		{"topologies twice", decode[storagev1.StorageClass](t, "metadata: {name: a}\nprovisioner: p\nallowedTopologies: [{matchLabelExpressions: [{key: z, values: [a, a]}]}, {matchLabelExpressions: [{key: z, values: [a]}]}]"),
			[]string{`allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: "a"`, `allowedTopologies[1].matchLabelExpressions: Duplicate value: ""`}},
		{"an attachment of nothing", decode[storagev1.VolumeAttachment](t, "metadata: {name: a}\nspec: {attacher: '', nodeName: '', source: {}}"), []string{
			"spec.attacher: Required value", "spec.nodeName: Invalid value: ...", "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"}},
		{"an inline volume with a claim", decode[storagev1.VolumeAttachment](t, "metadata: {name: a}\nspec: {attacher: a, nodeName: n, source: {inlineVolumeSpec: {accessModes: [ReadWriteOnce], claimRef: {name: c}, nfs: {server: s, path: /}}}}"),
			[]string{"spec.source.inlineVolumeSpec.claimRef: Forbidden: may not be specified in the context of inline volumes",
				"spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes"}},
		{"a driver that wants tokens for a moment", decode[storagev1.CSIDriver](t, "metadata: {name: a}\nspec: {nodeAllocatableUpdatePeriodSeconds: 5, tokenRequests: [{audience: a, expirationSeconds: 60}, {audience: a}]}"), []string{
			"spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 5: must be greater than or equal to 10 seconds",
			"spec.tokenRequests[0].expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes", `spec.tokenRequests[1].audience: Duplicate value: "a"`}},
		{"a node's driver twice", decode[storagev1.CSINode](t, "metadata: {name: n}\nspec: {drivers: [{name: a, nodeID: x}, {name: a, nodeID: ''}]}"),
			[]string{`spec.drivers[1].name: Duplicate value: "a"`, "spec.drivers[1].nodeID: Required value"}},
		{"less than no capacity", decode[storagev1.CSIStorageCapacity](t, "metadata: {name: a, namespace: ns}\nstorageClassName: a\ncapacity: -1"),
			[]string{`capacity: Invalid value: "-1": must be greater than or equal to 0`}},
		{"attributes without any", decode[storagev1.VolumeAttributesClass](t, "metadata: {name: a}\ndriverName: d"),
			[]string{"parameters: Required value: must contain at least one key/value pair"}},
	})
	changes(t, decode[storagev1.StorageClass](t, "metadata: {name: a}\nprovisioner: p\nparameters: {a: b}"), map[string]struct {
		change func(*storagev1.StorageClass)
		want   []string
	}{
		"expansion allowed": {func(c *storagev1.StorageClass) { c.AllowVolumeExpansion = ptr.To(true) }, nil},
		"everything else": {func(c *storagev1.StorageClass) {
			c.Provisioner, c.Parameters["a"], c.ReclaimPolicy = "q", "c", ptr.To(corev1.PersistentVolumeReclaimRetain)
			c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
		}, []string{"parameters: Invalid value: ...", `provisioner: Invalid value: "q": field is immutable`,
			`reclaimPolicy: Invalid value: "Retain": field is immutable`, `volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable`}},
	})
	changes(t, decode[storagev1.CSINode](t, "metadata: {name: n}\nspec: {drivers: [{name: a, nodeID: x}]}"), map[string]struct {
		change func(*storagev1.CSINode)
		want   []string
	}{
		"room for more volumes": {func(n *storagev1.CSINode) {
			n.Spec.Drivers[0].Allocatable = &storagev1.VolumeNodeResources{Count: ptr.To[int32](5)}
		}, nil},
		"another id": {func(n *storagev1.CSINode) { n.Spec.Drivers[0].NodeID = "y" }, []string{"spec.drivers: Invalid value: ..."}},
		"gone":       {func(n *storagev1.CSINode) { n.Spec.Drivers = nil }, nil},
	})
}
