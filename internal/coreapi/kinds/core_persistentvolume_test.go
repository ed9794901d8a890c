package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

const aVolume = "metadata: {name: pv}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], "

func TestInvalidVolumesAreRejected(t *testing.T) {
	const csi = "csi: {driver: csi.example.com, volumeHandle: v1}"
	volume := func(spec string) *corev1.PersistentVolume {
		return kindtest.Decode[corev1.PersistentVolume](t, aVolume+spec+"}")
	}
	bare := func(manifest string) *corev1.PersistentVolume {
		return kindtest.Decode[corev1.PersistentVolume](t, manifest)
	}
	kindtest.Refuses(t, []kindtest.Create{
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
	kindtest.Changes(t, volume(csi+", nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: failure-domain.beta.kubernetes.io/zone, operator: In, values: [a]}]}]}}"),
		map[string]kindtest.Change[*corev1.PersistentVolume]{
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
