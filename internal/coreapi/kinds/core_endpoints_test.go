package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

func TestEndpoints(t *testing.T) {
	of := func(subset string) *corev1.Endpoints {
		return kindtest.Decode[corev1.Endpoints](t, "metadata: {name: a, namespace: ns}\nsubsets: [{"+subset+"}]")
	}
	kindtest.Refuses(t, []kindtest.Create{
		{"nobody there", of("ports: [{port: 80}]"),
			[]string{"subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"}},
		{"the cloud's metadata service", of("addresses: [{ip: 169.254.169.254}], ports: [{port: 80}]"), []string{
			`subsets[0].addresses[0].ip: Invalid value: "169.254.169.254": may not be in the link-local range (169.254.0.0/16, fe80::/10)`}},
		{"everywhere and the multicast range", of("addresses: [{ip: 0.0.0.0}], notReadyAddresses: [{ip: 224.0.0.1}]"), []string{
			`subsets[0].addresses[0].ip: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)`,
			`subsets[0].notReadyAddresses[0].ip: Invalid value: "224.0.0.1": may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)`}},
		{"a name in place of an address", of("addresses: [{ip: localhost}]"),
			[]string{`subsets[0].addresses[0].ip: Invalid value: "localhost": must be a valid IP address...`}},
		{"several ports without names", of("addresses: [{ip: 10.0.0.1}], ports: [{port: 1}, {port: 2}]"),
			[]string{"subsets[0].ports[0].name: Required value", "subsets[0].ports[1].name: Required value"}},
	})
	kindtest.Changes(t, of("addresses: [{ip: 10.0.0.1, nodeName: n1}]"), map[string]kindtest.Change[*corev1.Endpoints]{
		"an address that moves to another node": {func(e *corev1.Endpoints) { e.Subsets[0].Addresses[0].NodeName = ptr.To("n2") }, nil},
	})
	old := of("addresses: [{ip: 10.0.0.1}]")
	old.Subsets[0].Addresses[0].IP = "010.0.0.1"
	kindtest.Changes(t, old, map[string]kindtest.Change[*corev1.Endpoints]{
		"an address from before leading zeros were refused": {func(e *corev1.Endpoints) { e.Labels = map[string]string{"a": "b"} }, nil},
		"the same beside something new": {func(e *corev1.Endpoints) {
			e.Subsets[0].Ports = []corev1.EndpointPort{{Port: 80, Protocol: "TCP"}}
		}, []string{`subsets[0].addresses[0].ip: Invalid value: "010.0.0.1": must not have leading 0s`}},
	})
}
