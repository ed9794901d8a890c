package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

const aClaim = "metadata: {name: data, namespace: ns}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}"

func TestInvalidVolumeClaimsAreRejected(t *testing.T) {
	claim := func(rest string) *corev1.PersistentVolumeClaim {
		return kindtest.Decode[corev1.PersistentVolumeClaim](t, aClaim+rest+"}")
	}
	kindtest.Refuses(t, []kindtest.Create{
		{"nothing asked for", kindtest.Decode[corev1.PersistentVolumeClaim](t, "metadata: {name: a, namespace: ns}"),
			[]string{"spec.accessModes: Required value: at least 1 access mode is required", "spec.resources[storage]: Required value"}},
		{"a class that cannot be a name", claim(", storageClassName: Fast"), []string{`spec.storageClassName: Invalid value: "Fast": a lowercase RFC 1123...`}},
		{"filled from a kind of the core group that is no claim", claim(", dataSource: {kind: Secret, name: s}"),
			[]string{`spec.dataSource: Invalid value: "Secret": must be 'PersistentVolumeClaim' when referencing the default apiGroup`}},
		{"two sources that differ", claim(", dataSource: {kind: PersistentVolumeClaim, name: a}, dataSourceRef: {kind: PersistentVolumeClaim, name: b}"),
			[]string{"spec: Invalid value: {}: must match dataSourceRef"}},
	})
	type change = kindtest.Change[*corev1.PersistentVolumeClaim]
	size := func(s string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests["storage"] = resource.MustParse(s) }
	}
	const frozenSpec = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims..."
	kindtest.Changes(t, claim(""), map[string]change{
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
	kindtest.Changes(t, bound, map[string]change{
		"grown":                              {size("4Gi"), nil},
		"less again, while it has not grown": {size("2Gi"), nil},
		"less than it has":                   {size("1Gi"), []string{"spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"}},
		"another volume":                     {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "other" }, []string{frozenSpec}},
		"other attributes":                   {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr.To("silver") }, nil},
		"no attributes": {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = nil },
			[]string{"spec.volumeAttributesClassName: Forbidden: update to nil is forbidden when status.currentVolumeAttributesClassName is not nil"}},
	})
}
