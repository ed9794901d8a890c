package kinds_test

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestNetworkingDefaultsOfTheCluster(t *testing.T) {
	kindtest.Defaults(t, []kindtest.Default{
		{"a policy that is about both directions", &networkingv1.NetworkPolicy{}, "spec: {podSelector: {}, ingress: [{ports: [{port: 80}]}], egress: [{ports: [{port: 53, protocol: UDP}]}]}",
			"metadata: {}\nspec: {podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{ports: [{port: 80, protocol: TCP}]}], egress: [{ports: [{port: 53, protocol: UDP}]}]}"},
		{"a policy that denies all", &networkingv1.NetworkPolicy{}, "spec: {podSelector: {}}", "metadata: {}\nspec: {podSelector: {}, policyTypes: [Ingress]}"},
		{"parameters of all the cluster", &networkingv1.IngressClass{}, "spec: {parameters: {kind: K, name: p}}",
			"metadata: {}\nspec: {parameters: {kind: K, name: p, scope: Cluster}}"},
	})
}
