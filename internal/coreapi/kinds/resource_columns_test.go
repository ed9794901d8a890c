package kinds_test

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestDeviceTables(t *testing.T) {
	kindtest.Table[resourcev1.DeviceClass](t, "metadata: {name: gpus}\nspec: {}")
	kindtest.Table[resourcev1.DeviceTaintRule](t,
		"metadata: {name: drain}\nspec: {taint: {key: example.com/broken, value: 'yes', effect: NoExecute, timeAdded: '2026-03-04T11:00:00Z'}}",
		"metadata: {name: undated}\nspec: {taint: {key: example.com/old, effect: None}}")
	const allocation = "allocation: {devices: {results: [{request: one, driver: d, pool: p, device: x}]}}"
	kindtest.Table[resourcev1.ResourceClaim](t,
		"metadata: {name: a, namespace: ns}\nspec: {}",
		"metadata: {name: b, namespace: ns}\nspec: {}\nstatus: {"+allocation+"}",
		"metadata: {name: c, namespace: ns}\nspec: {}\nstatus: {"+allocation+", reservedFor: [{resource: pods, name: p, uid: u}]}",
		"metadata: {name: d, namespace: ns, deletionTimestamp: '2026-03-04T11:00:00Z'}\nspec: {}",
		"metadata: {name: e, namespace: ns, deletionTimestamp: '2026-03-04T11:00:00Z'}\nspec: {}\nstatus: {"+allocation+"}")
	kindtest.Table[resourcev1.ResourceClaimTemplate](t, "metadata: {name: gpu, namespace: ns}\nspec: {}")
	kindtest.Table[resourcev1.ResourceSlice](t,
		"metadata: {name: n1-gpus}\nspec: {driver: gpu.example.com, nodeName: n1, pool: {name: n1, generation: 1, resourceSliceCount: 1}}",
		"metadata: {name: shared}\nspec: {driver: net.example.com, allNodes: true, pool: {name: rack/1, generation: 1, resourceSliceCount: 1}}")
}
