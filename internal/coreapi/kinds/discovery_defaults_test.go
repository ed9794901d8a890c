package kinds_test

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestDiscoveryDefaults(t *testing.T) {
	kindtest.Defaults(t, []kindtest.Default{
		{"a slice of endpoints", &discoveryv1.EndpointSlice{}, "ports: [{port: 80}]",
			"metadata: {}\naddressType: ''\nendpoints: null\nports: [{name: '', port: 80, protocol: TCP}]"},
	})
}
