package kinds_test

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestDiscoveryRegistrationTables(t *testing.T) {
	kindtest.Table[discoveryv1.EndpointSlice](t,
		"metadata: {name: empty}\naddressType: IPv4",
		"metadata: {name: a}\naddressType: IPv4\nports: [{port: 80}, {name: web}, {}]\nendpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2, 10.0.0.3]}]",
		"metadata: {name: many}\naddressType: IPv6\nports: [{port: 1}, {port: 2}, {port: 3}, {port: 4}]\nendpoints: [{addresses: ['fd00::1', 'fd00::2', 'fd00::3', 'fd00::4', 'fd00::5']}]",
		"metadata: {name: nameless}\naddressType: IPv4\nports: [{name: ''}]")
}
