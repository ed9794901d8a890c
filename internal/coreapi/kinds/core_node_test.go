package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestNodes(t *testing.T) {
	kindtest.Refuses(t, []kindtest.Create{
		{"a debt of memory", kindtest.Decode[corev1.Node](t, "metadata: {name: n}\nstatus: {capacity: {memory: '-1'}, allocatable: {}}"),
			[]string{`status.capacity.memory: Invalid value: "-1": must be greater than or equal to 0`}},
		{"half a device", kindtest.Decode[corev1.Node](t, "metadata: {name: n}\nstatus: {capacity: {example.com/gpu: 500m}, allocatable: {}}"),
			[]string{`status.capacity.example.com/gpu: Invalid value: "500m": must be an integer`}},
		{"a taint twice, and one without an effect", kindtest.Decode[corev1.Node](t, "metadata: {name: n}\nspec: {taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}, {key: b}]}"),
			[]string{`metadata.taints[1]: Duplicate value...`, "metadata.taints[2].effect: Required value"}},
		{"two CIDRs of one family", kindtest.Decode[corev1.Node](t, "metadata: {name: n}\nspec: {podCIDRs: [10.0.0.0/24, 10.0.1.0/24]}"),
			[]string{`spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: may specify no more than one CIDR for each IP family`}},
	})
	kindtest.Changes(t, kindtest.Decode[corev1.Node](t, "metadata: {name: n}\nspec: {podCIDR: 10.0.0.0/24, podCIDRs: [10.0.0.0/24], providerID: p://1}"), map[string]kindtest.Change[*corev1.Node]{
		"kubectl cordon, with its taint": {func(n *corev1.Node) {
			n.Spec.Unschedulable = true
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
		}, nil},
		"another provider": {func(n *corev1.Node) { n.Spec.ProviderID = "p://2" },
			[]string{"spec.providerID: Invalid value: null: field cannot be modified once set"}},
		"another CIDR": {func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.0.1.0/24"} },
			[]string{`spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid`}},
		"an address twice": {func(n *corev1.Node) {
			n.Status.Addresses = []corev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}, {Type: "InternalIP", Address: "10.0.0.1"}}
		}, []string{"status.addresses[1]: Duplicate value..."}},
		"an id from long ago": {func(n *corev1.Node) { n.Spec.DoNotUseExternalID = "x" },
			[]string{"spec.externalID: Forbidden: may not be updated"}},
	})
}
